"""Builds a node's request to fetch a job's prerequisites: it expands names in addresses, and chooses each
prerequisite's path."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.fetch.prerequisite_uris import uri_of
from holdfast.fetch.target_place import key_of
from holdfast.model.fetch_messages import FetchOrder
from holdfast.model.job_spec import JobSpec
from holdfast.model.runtime_plan import Prerequisite
from holdfast.runtime.name_expansion import ExpansionTarget, NameValues, expand

#: The name of a variable on the node. It has the directory for prerequisites whose `into` is relative.
FETCH_DIR = "HOLDFAST_FETCH_DIR"
_KEY_DIGITS = 16


def data_directory(environment: Mapping[str, str], exchange: Path | None) -> Path | None:
    """Return the directory to which a relative `into` refers: the variable's value, or else the exchange directory.
    Return None for the cache."""
    named = environment.get(FETCH_DIR, "")
    return Path(named).absolute() if named else exchange


def own_exchange() -> Path | None:
    """Return the exchange directory from which holdfast was started, or None if holdfast is installed normally."""
    for above in Path(sys.executable).parents:
        if above.name == "holdfast" and (above.parent / "run").is_file():
            return above.parent
    return None


def cache(environment: Mapping[str, str]) -> Path:
    """Return the cache directory that all jobs of this user on this machine share."""
    base = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or Path.home()}/.cache"
    return Path(base) / "holdfast" / "data"


def order_of(
    spec: JobSpec, environment: Mapping[str, str], *, node: str, limit_s: float, directory: Path | None, who: str
) -> FetchOrder:
    """Return the fetch order of a node. Raises BadUsage.

    `node`: the node's name. `limit_s`: the time limit in seconds. `directory`: the base of a relative `into`; None for
    the cache. `who`: names this fetch to other processes that wait for it.
    """
    known = _known(spec, environment)
    things = [_placed(thing, known, directory, environment) for thing in spec.runtime.prerequisites]
    _apart(things)
    return FetchOrder(
        things=tuple(things),
        who=who,
        node=node,
        # Each node gets a different seed, so that nodes whose fetches fail at the same time retry at different times.
        seed=sum(f"{spec.name}{node}".encode()),
        limit_s=limit_s,
    )


def variable_of(name: str) -> str:
    """Return the name of the variable with a prerequisite's path for workers: `HOLDFAST_DATA_MODEL` for `model`."""
    return (
        "HOLDFAST_DATA_" + "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name).upper()
    )


def variables_of(spec: JobSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the workers' variables with each prerequisite's path on this node. Return none if the request is invalid,
    because the fetch will report that."""
    try:
        directory = data_directory(environment, own_exchange())
        order = order_of(spec, environment, node="", limit_s=0.0, directory=directory, who="")
    except BadUsage:
        return {}
    return {variable_of(thing.name): thing.into for thing in order.things}


def _known(spec: JobSpec, environment: Mapping[str, str]) -> NameValues:
    user = spec.user or environment.get("USER", "") or environment.get("LOGNAME", "")
    ours = {
        "PAI_JOB_NAME": spec.name,
        "PAI_USER_NAME": user,
        "PAI_USERNAME": user,
        "PAI_FRAMEWORK_NAME": f"{user}~{spec.name}",
        "PAI_JOB_VC_NAME": spec.virtual_cluster,
        "PAI_DEFAULT_FS_URI": "",
    }
    return NameValues.of({**ours, **environment}, spec.parameters)


def _placed(
    thing: Prerequisite, known: NameValues, directory: Path | None, environment: Mapping[str, str]
) -> Prerequisite:
    where = f"prerequisites.{thing.name}"
    whole = replace(thing, uri=expand(thing.uri, known, f"{where}.uri", ExpansionTarget.HOLDFAST))
    uri = uri_of(whole)
    into = Path(expand(thing.into or thing.name, known, f"{where}.into", ExpansionTarget.HOLDFAST)).expanduser()
    if into.is_absolute():
        place = into
    elif directory is not None:
        place = directory / into
    else:
        # Jobs share the cache. Other content gets another path, so it never replaces a file that a job reads.
        place = cache(environment) / key_of(whole, uri)[:_KEY_DIGITS] / into
    if ".." in into.parts or not place.name:
        raise BadUsage(f"{where}.into: expected a path without `..`, got {str(into)!r}")
    return replace(whole, into=os.path.normpath(place))


def _apart(things: Sequence[Prerequisite]) -> None:
    """Raise BadUsage if the path of one prerequisite is equal to another's path or inside it. Each path is replaced as
    a whole."""
    for one in things:
        for other in things:
            if one is not other and (Path(one.into) == Path(other.into) or Path(one.into) in Path(other.into).parents):
                raise BadUsage(
                    f"prerequisites.{other.name}.into: {other.into} lies at or in {one.into}, where the prerequisite "
                    f"{one.name} lies: expected places beside each other"
                )
