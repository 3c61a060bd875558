"""The list of all platforms. A platform is built in, or it is an entry point of an installed package.

No other part of holdfast names the platforms' modules. A built-in platform is imported only if one of its variables or
settings is set. A package's platform is imported only if something names it: `HOLDFAST_PLATFORM`, an agent's order,
an option, or a job's record.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import BadUsage
from holdfast.platforms.platform import Platform, PlatformAccess

if TYPE_CHECKING:
    from holdfast.model.job_spec import JobSpec
    from holdfast.platforms.job_queue import JobQueue
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.platforms.node_hooks import NodeHooks
    from holdfast.platforms.program_output import PrintedLog
    from holdfast.reactor import Reactor
    from holdfast.settings.resolved_settings import Settings

#: The entry-point group of platforms. An entry is `name = "package.module:Class"`.
GROUP = "holdfast.platforms"
#: The variable that names a package's platform. The name is needed because loading all entry points would slow each
#: start.
NAMED_BY = "HOLDFAST_PLATFORM"
#: A variable that is set in workers. A run that a worker starts gets its signals from the worker, not from the
#: platform.
_IN_A_WORKER = "HOLDFAST_ATTEMPT"


class BuiltIn(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a built-in platform that are needed before its modules are imported."""

    name: str
    #: Import target of the class derived from `Platform`, as in an entry point: `package.module:Class`.
    target: str
    #: Import target of the class derived from `PlatformAccess`, whose module imports less.
    access: str
    #: Environment variables that identify the platform. It sets at least one of them in the processes of its jobs.
    variables: tuple[str, ...] = ()
    #: Names of settings with which a user chooses this platform.
    settings: tuple[str, ...] = ()
    #: A variable that is set in agents if they get their settings from the environment instead of standard input.
    agent: str = ""
    #: Environment variables of containers that run a job's image. The platform sets at least one of them.
    images: tuple[str, ...] = ()
    #: The variable with the name that the platform gives this node.
    node: str = ""
    #: Whether the platform's watch can explain signals.
    explains_signals: bool = True
    #: Pattern of a word that names one of the platform's jobs which holdfast did not start.
    foreign: str = ""
    #: Import target of the function that finds the logs of such a job.
    foreign_job: str = ""


_HERE = "holdfast.platforms"

#: Built-in platforms. If several could start a job's agents, the first one does.
BUILT_IN: tuple[BuiltIn, ...] = (
    BuiltIn(
        name="kubernetes",
        target=f"{_HERE}.kubernetes.kubernetes_platform:KubernetesPlatform",
        access=f"{_HERE}.kubernetes.kubernetes_access:KubernetesAccess",
        variables=("HOLDFAST_KUBERNETES_JOB",),
        agent="HOLDFAST_OWNER",
        images=("HOLDFAST_KUBERNETES_JOB", "HOLDFAST_POD", "HOLDFAST_OWNER", "KUBERNETES_SERVICE_HOST"),
        foreign=r"(?:[\w.-]+/)?(?:pod|job)/[\w.-]+",
        foreign_job=f"{_HERE}.kubernetes.foreign_job:foreign_job",
    ),
    BuiltIn(
        name="ssh",
        target=f"{_HERE}.ssh.ssh_platform:SshPlatform",
        access=f"{_HERE}.ssh.ssh_platform:SshPlatform",
        settings=("hosts", "hostfile"),
    ),
    BuiltIn(
        name="slurm",
        target=f"{_HERE}.slurm.interface.slurm_platform:SlurmPlatform",
        access=f"{_HERE}.slurm.interface.slurm_access:SlurmAccess",
        variables=("SLURM_JOB_ID",),
        node="SLURMD_NODENAME",
        foreign=r"slurm:\S+",
        foreign_job=f"{_HERE}.slurm.foreign_job:foreign_job",
    ),
    BuiltIn(
        name="local",
        target=f"{_HERE}.local.local_platform:LocalPlatform",
        access=f"{_HERE}.local.local_access:LocalAccess",
        variables=("HOLDFAST_PLATFORM_RUN",),
        explains_signals=False,
    ),
)


# ----------------------------------------------------------------------------------------- finding a platform by name


def _loaded(target: str) -> Any:
    """Import a class and create an object of it. `target`: `package.module:Class`, as in an entry point."""
    module, _, member = target.partition(":")
    return getattr(importlib.import_module(module), member)()


def foreign_logs(word: str) -> Iterator[str | PrintedLog] | None:
    """Return the logs (paths and texts) of a job that holdfast did not start; None: the word names no such job.

    Raise `BadUsage` if the platform does not know the job.
    """
    row = next((each for each in BUILT_IN if each.foreign and re.fullmatch(each.foreign, word)), None)
    if row is None:
        return None
    module, _, member = row.foreign_job.partition(":")
    found: Iterator[str | PrintedLog] = getattr(importlib.import_module(module), member)(word)
    return found


@functools.cache
def _packaged_target(name: str) -> str | None:
    """Return the import target of a package's platform. Return None if no installed package has this platform."""
    from importlib.metadata import (
        entry_points,
    )  # imported late: the function reads the metadata of every installed package

    return next((point.value for point in entry_points(group=GROUP, name=name)), None)


@functools.cache
def platform_named(name: str) -> Platform | None:
    """Return the platform of this name; None if no installed platform has this name."""
    target = next((row.target for row in BUILT_IN if row.name == name), None) or _packaged_target(name)
    found: Platform | None = _loaded(target) if target else None
    return found


@functools.cache
def access_to(name: str) -> PlatformAccess | None:
    """Return the part of a platform that commands about jobs use.

    Return None if no installed platform has this name.
    """
    target = next((row.access for row in BUILT_IN if row.name == name), None)
    if target is None:
        return platform_named(name)
    found: PlatformAccess = _loaded(target)
    return found


def must_be_known(name: str, source: str) -> Platform:
    """Return the platform of this name. Raises `BadUsage` if there is none.

    `source`: the option or variable that contains the name.
    """
    if (found := platform_named(name)) is None:
        raise unknown(name, source)
    return found


def unknown(name: str, source: str) -> BadUsage:
    """Return the error for a platform name that is not installed. `source`: as for `must_be_known`."""
    return BadUsage(
        f"{source} {name}: no such platform is installed: expected {', '.join(row.name for row in BUILT_IN)}, or "
        f"an entry point of `{GROUP}`",
        hint="pip list",
    )


# ------------------------------------------------------------------------------- finding the platform of this process


def _row_around(environment: Mapping[str, str]) -> BuiltIn | None:
    return next((row for row in BUILT_IN if any(name in environment for name in row.variables)), None)


def _packaged(environment: Mapping[str, str]) -> Platform | None:
    """Return a package's platform if this process belongs to one of its jobs, else None. Raises `BadUsage`."""
    if not (name := environment.get(NAMED_BY)):
        return None
    found = must_be_known(name, NAMED_BY)
    return found if found.job(environment) is not None else None


def platform_around(environment: Mapping[str, str]) -> Platform | None:
    """Return the platform that started this process or one of its ancestors."""
    row = _row_around(environment)
    return platform_named(row.name) if row is not None else _packaged(environment)


def platform_here(environment: Mapping[str, str]) -> Platform | None:
    """Return the platform that runs this process.

    Return None in a job's worker, and if no platform runs the process.
    """
    return None if _IN_A_WORKER in environment else platform_around(environment)


def platforms_to_start_with(environment: Mapping[str, str], settings: Settings) -> Iterator[Platform]:
    """Yield the platforms that may start a job's agents, the preferred one first."""
    for row in BUILT_IN:
        chosen = any(name in environment for name in row.variables) or any(map(settings.value, row.settings))
        if chosen and (found := platform_named(row.name)) is not None:
            yield found
    if (packaged := _packaged(environment)) is not None:
        yield packaged


def platform_of_agent(environment: Mapping[str, str]) -> Platform | None:
    """Return the platform that passed this agent's order in the environment.

    Return None if they come on standard input.
    """
    row = next((row for row in BUILT_IN if row.agent and environment.get(row.agent)), None)
    return platform_named(row.name) if row is not None else None


def runs_images(environment: Mapping[str, str]) -> bool:
    """Whether a platform started this process in a container of its job's image."""
    return any(name in environment for row in BUILT_IN for name in row.images)


def node_called(environment: Mapping[str, str]) -> str:
    """Return the name that the platform gives this node. If empty, the machine's own name applies."""
    return next((environment[row.node] for row in BUILT_IN if row.node and environment.get(row.node)), "")


# -------------------------------------------------------------------------------------------------- for a running job


def on_platform(environment: Mapping[str, str]) -> bool:
    """Whether a platform runs this process and explains signals. Then a signal does not make a node leave."""
    if _IN_A_WORKER in environment:
        return False
    if (row := _row_around(environment)) is not None:
        return row.explains_signals
    packaged = _packaged(environment)
    return packaged is not None and packaged.explains_signals


def leave_to_platform(
    reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
) -> bool:
    """Ask the platform to restart or end the job, for an agent that has lost its owner for good.

    `done` is called when nothing is left to do. Return False if the platform is not asked.
    """
    platform = platform_here(environment)
    return platform is not None and platform.orphaned(reactor, say, environment, done)


def watch_of(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> JobWatch | None:
    """Return the watch over this owner's job. Return None if no platform watches the job."""
    platform = platform_here(environment)
    return None if platform is None else platform.watch(spec, reactor, say, environment)


def exit_status(code: int, environment: Mapping[str, str]) -> int:
    """Return the owner process's exit status for a job that ended with `code`."""
    platform = platform_around(environment) if code else None
    return code if platform is None else platform.exit_status(code)


# --------------------------------------------------------------------------------------------- queues and node checks


def queue_of(platform: str) -> JobQueue | None:
    """Return a platform's queue. Return None if the platform is not installed or has no queue."""
    found = access_to(platform)
    return None if found is None else found.queue()


def title_of(platform: str) -> str:
    """Return the platform's name for messages."""
    found = access_to(platform)
    return platform if found is None else found.title


def all_node_hooks() -> Iterator[NodeHooks]:
    """Yield the hooks of all built-in platforms that have hooks."""
    for row in BUILT_IN:
        found = access_to(row.name)
        hooks = found.node_hooks() if found is not None else None
        if hooks is not None:
            yield hooks
