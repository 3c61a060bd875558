"""Checks the names of variables and parameters of holdfast and OpenPAI in a job's commands before the job starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from holdfast.explain.text.secret_filter import hide
from holdfast.launch.fetch_request import variable_of, variables_of
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import JobSpec, Placement
from holdfast.model.peer_addresses import gather, ports_needed
from holdfast.runtime import openpai_variables
from holdfast.runtime.name_expansion import (
    ExpansionTarget,
    NameValues,
    expand,
    expand_command,
    has_names,
    reader_of_script,
    secret_variable,
)

OURS = ("PAI_", "HOLDFAST_")
#: The variables that holdfast sets for each worker, besides OpenPAI's.
WORKER_VARIABLES = (
    "HOLDFAST_JOB", "HOLDFAST_ATTEMPT", "HOLDFAST_HOME", "HOLDFAST_PROGRESS", "HOLDFAST_DRAIN", "HOLDFAST_PEERS",
    "HOLDFAST_SSH_CONFIG",
    "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_LOGS", "HOLDFAST_ERRORS", "HOLDFAST_CONFIG",
    "PAI_OUTPUT_DIR", "HOLDFAST_CPUS",
)  # fmt: skip

#: Limit on the number of workers that a role is assumed to have while the real number is unknown.
MOST_NAMED = 10_000
_INDEX = Lazy(r"_([0-9]{1,5})(?![0-9])")


def checked_environment(job: JobFile, environment: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the environment of a job's workers, with the values of its secrets. From now on records and reports mask
    these values.

    Raises `BadUsage` as `check_names` does. `where`: the source of the job, for messages.
    """
    hide(job.secrets.values())
    whole = {**environment, **{secret_variable(name): value for name, value in job.secrets.items()}}
    check_names(job.spec, whole, where)
    return whole


def check_names(spec: JobSpec, environment: Mapping[str, str], where: str) -> None:
    """Raise `BadUsage` if a command contains a name of holdfast or OpenPAI that no worker will have. `where`: the
    source of the job, for messages.

    The values are filled in when a worker starts, because hosts and ports are unknown before.
    """
    if not any(has_names(text) for role in spec.roles for text in (*role.command, role.script)):
        return
    if any(role.per_node for role in spec.roles):
        spec = _with_any_index(spec)
    if spec.runtime.prerequisites:
        environment = {**environment, **variables_of(spec, environment)}
    here = NameValues.of(environment, spec.parameters)
    known = replace(here, later=frozenset((*WORKER_VARIABLES, *_of_data(spec), *_of_openpai(spec))))
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
    """Return the job with enough workers for every index that its commands name.

    This only concerns roles whose number of workers is unknown until the nodes have joined.
    """
    texts = [text for role in spec.roles for text in (*role.command, role.script)]
    named = [int(found[1]) for text in texts for found in _INDEX.finditer(text)]
    count = min(max(named, default=0) + 1, MOST_NAMED)
    roles = tuple(replace(role, count=max(role.count, count)) if role.per_node else role for role in spec.roles)
    return replace(spec, roles=roles)


def _of_data(spec: JobSpec) -> Iterator[str]:
    """Yield the names of the variables with the paths of the job's prerequisites."""
    yield from (variable_of(thing.name) for thing in spec.runtime.prerequisites)


def _of_openpai(spec: JobSpec) -> Iterator[str]:
    """Yield the names of OpenPAI's variables that the job's workers will have."""
    if not spec.tells_peers:
        return
    placements = [
        Placement(rank=0, role=role.name, role_rank=index, node="", local_rank=0)
        for role in spec.roles
        for index in range(role.count)
    ]
    peers = gather(spec, placements, {}, {node: range(count) for node, count in ports_needed(spec, placements).items()})
    assert peers is not None
    names = openpai_variables.peer_names(peers)
    yield from names.whole
    for role in spec.roles:
        placement = next(placement for placement in placements if placement.role == role.name)
        yield from openpai_variables.variables(spec, placement, names, user="", attempt=1)
