"""Checks holdfast's own names in a job's commands before it starts, and reports a wrong one at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import JobSpec, Seat
from holdfast.model.peer_addresses import gather, ports_needed
from holdfast.runtime import openpai_variables
from holdfast.runtime.name_expansion import (
    ExpansionTarget,
    NameValues,
    expand,
    expand_command,
    has_names,
    reader_of_script,
)

OURS = ("PAI_", "HOLDFAST_")
#: The names that each worker gets, besides OpenPAI's variables and its environment.
OF_WORKERS = (
    "HOLDFAST_JOB", "HOLDFAST_ATTEMPT", "HOLDFAST_HOME", "HOLDFAST_PROGRESS", "HOLDFAST_DRAIN", "HOLDFAST_PEERS",
    "HOLDFAST_SSH_CONFIG",
    "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_LOGS", "HOLDFAST_ERRORS", "HOLDFAST_CONFIG",
    "PAI_OUTPUT_DIR", "HOLDFAST_CPUS",
)  # fmt: skip

#: Until the number of a role's workers is known, names are made for up to so many.
MOST_NAMED = 10_000
_INDEX = Lazy(r"_([0-9]{1,5})(?![0-9])")


def check_names(spec: JobSpec, environment: Mapping[str, str], where: str) -> None:
    """Raises `BadUsage` for names of ours in commands that no worker will have. `where`: the source of the job.

    Their values are filled in when a worker starts: only then are hosts and ports known.
    """
    if not any(has_names(text) for role in spec.roles for text in (*role.command, role.script)):
        return
    if any(role.per_node for role in spec.roles):
        spec = _with_any_index(spec)
    if spec.runtime.prerequisites:
        from holdfast.launch.fetch_request import variables_of  # few jobs have such names

        environment = {**environment, **variables_of(spec, environment)}
    here = NameValues.of(environment, spec.parameters)
    known = replace(here, later=frozenset((*OF_WORKERS, *_of_data(spec), *_of_openpai(spec))))
    in_file = where.startswith("job file")
    for role in spec.roles:
        known = replace(known, values={**here.values, **{n: v for n, v in role.env.items() if n.startswith(OURS)}})
        place = f"{where}: `roles.{role.name}.command`" if in_file else where
        if not in_file and role.command[1:2] == ("-c",):
            expand(role.command[-1], known, place, ExpansionTarget.SHELL)
        else:
            expand_command(role.command, known, place)
        expand(role.script, known, place, reader_of_script(role.command))


def _with_any_index(spec: JobSpec) -> JobSpec:
    """The number of workers is known only with the nodes: until then every index that a command names may exist."""
    texts = [text for role in spec.roles for text in (*role.command, role.script)]
    named = [int(found[1]) for text in texts for found in _INDEX.finditer(text)]
    count = min(max(named, default=0) + 1, MOST_NAMED)
    roles = tuple(replace(role, count=max(role.count, count)) if role.per_node else role for role in spec.roles)
    return replace(spec, roles=roles)


def _of_data(spec: JobSpec) -> Iterator[str]:
    """The names of the variables with the paths of the job's prerequisites."""
    if spec.runtime.prerequisites:
        from holdfast.launch.fetch_request import variable_of  # few jobs have prerequisites

        yield from (variable_of(thing.name) for thing in spec.runtime.prerequisites)


def _of_openpai(spec: JobSpec) -> Iterator[str]:
    """The names of OpenPAI's variables that workers of this job will have."""
    if not spec.tells_peers:
        return
    seats = [
        Seat(rank=0, role=role.name, role_rank=index, node="", local_rank=0)
        for role in spec.roles
        for index in range(role.count)
    ]
    peers = gather(spec, seats, {}, {node: range(count) for node, count in ports_needed(spec, seats).items()})
    assert peers is not None
    names = openpai_variables.peer_names(peers)
    yield from names.whole
    for role in spec.roles:
        seat = next(seat for seat in seats if seat.role == role.name)
        yield from openpai_variables.variables(spec, seat, names, user="", attempt=1)
