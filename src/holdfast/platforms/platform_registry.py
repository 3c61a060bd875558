"""Where platforms come from: built in, or an entry point of an installed package. Nothing else knows their modules.

A built-in platform is imported where one of its variables or settings is there. A package's platform is imported where
something names it: `HOLDFAST_PLATFORM`, an agent's order, an option, a job's record.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import BadUsage
from holdfast.platforms.platform import Platform

if TYPE_CHECKING:
    from holdfast.model.job_spec import JobSpec
    from holdfast.platforms.job_queue import JobQueue
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.platforms.node_hooks import NodeHooks
    from holdfast.reactor import Reactor
    from holdfast.record.job_views import JobView
    from holdfast.settings.resolved_settings import Settings

#: The entry-point group: `name = "package.module:Class"`.
GROUP = "holdfast.platforms"
#: The variable that names the platform of a package: to look for all of them at every start would take too long.
NAMED_BY = "HOLDFAST_PLATFORM"
#: Set in a worker: a run that a worker starts gets its signals from that worker.
_IN_A_WORKER = "HOLDFAST_ATTEMPT"


class BuiltIn(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in platform, as far as it is known without being imported."""

    name: str
    #: `package.module:Class`, as of an entry point.
    target: str
    #: One of them is set in the processes of its jobs.
    variables: tuple[str, ...] = ()
    #: The user chooses it by one of these settings.
    settings: tuple[str, ...] = ()
    #: Set where it starts an agent whose order is not on standard input.
    agent: str = ""
    #: One of them is set where it has started the image of a job.
    images: tuple[str, ...] = ()
    #: Has its name for this node.
    node: str = ""


_HERE = "holdfast.platforms"

#: In the order in which they are asked to start a job's agents.
BUILT_IN: tuple[BuiltIn, ...] = (
    BuiltIn(
        name="kubernetes",
        target=f"{_HERE}.kubernetes.kubernetes_platform:KubernetesPlatform",
        variables=("HOLDFAST_KUBERNETES_JOB",),
        agent="HOLDFAST_OWNER",
        images=("HOLDFAST_KUBERNETES_JOB", "HOLDFAST_POD", "HOLDFAST_OWNER", "KUBERNETES_SERVICE_HOST"),
    ),
    BuiltIn(name="ssh", target=f"{_HERE}.ssh.ssh_platform:SshPlatform", settings=("hosts", "hostfile")),
    BuiltIn(
        name="slurm",
        target=f"{_HERE}.slurm.door.slurm_platform:SlurmPlatform",
        variables=("SLURM_JOB_ID",),
        node="SLURMD_NODENAME",
    ),
)


# ------------------------------------------------------------------------------------------------------ by name


@functools.cache
def platform_named(name: str) -> Platform | None:
    """The platform of this name; None: nothing that is installed has one."""
    target = next((row.target for row in BUILT_IN if row.name == name), None)
    if target is None:
        from importlib.metadata import entry_points  # reads the metadata of every installed package

        target = next((point.value for point in entry_points(group=GROUP, name=name)), None)
    if target is None:
        return None
    module, _, member = target.partition(":")
    found: Platform = getattr(importlib.import_module(module), member)()
    return found


def must_be_known(name: str, source: str) -> Platform:
    """The platform of this name. `source`: what names it. Raises `BadUsage`."""
    found = platform_named(name)
    if found is None:
        raise BadUsage(
            f"{source} {name}: no such platform is installed: expected {', '.join(row.name for row in BUILT_IN)}, or "
            f"an entry point of `{GROUP}`",
            hint="pip list",
        )
    return found


# ------------------------------------------------------------------------------------------------------ of a process


def _row_around(environment: Mapping[str, str]) -> BuiltIn | None:
    return next((row for row in BUILT_IN if any(name in environment for name in row.variables)), None)


def _packaged(environment: Mapping[str, str]) -> Platform | None:
    """A package's platform, where this process belongs to one of its jobs. Raises `BadUsage`."""
    if not (name := environment.get(NAMED_BY)):
        return None
    found = must_be_known(name, NAMED_BY)
    return found if found.job(environment) is not None else None


def platform_around(environment: Mapping[str, str]) -> Platform | None:
    """The platform that has started this process, or a process above it."""
    row = _row_around(environment)
    return platform_named(row.name) if row is not None else _packaged(environment)


def platform_here(environment: Mapping[str, str]) -> Platform | None:
    """The platform that runs this process; None in a worker of a job, and without a platform."""
    return None if _IN_A_WORKER in environment else platform_around(environment)


def platforms_to_start_with(environment: Mapping[str, str], settings: Settings) -> Iterator[Platform]:
    """The platforms that may start the agents of a job, the first choice first."""
    for row in BUILT_IN:
        chosen = any(name in environment for name in row.variables) or any(map(settings.value, row.settings))
        if chosen and (found := platform_named(row.name)) is not None:
            yield found
    if (packaged := _packaged(environment)) is not None:
        yield packaged


def platform_of_agent(environment: Mapping[str, str]) -> Platform | None:
    """The platform that has started this agent with its order in the environment; None: it is on standard input."""
    row = next((row for row in BUILT_IN if row.agent and environment.get(row.agent)), None)
    return platform_named(row.name) if row is not None else None


def runs_images(environment: Mapping[str, str]) -> bool:
    """Whether a platform has started this process in the image of its job."""
    return any(name in environment for row in BUILT_IN for name in row.images)


def node_called(environment: Mapping[str, str]) -> str:
    """The platform's name for this node; empty: the machine's own name is used."""
    return next((environment[row.node] for row in BUILT_IN if row.node and environment.get(row.node)), "")


# ------------------------------------------------------------------------------------------------------ a running job


def on_platform(environment: Mapping[str, str]) -> bool:
    """Whether a platform runs this process and explains signals: no node leaves the job because of one."""
    if _IN_A_WORKER in environment:
        return False
    if _row_around(environment) is not None:
        return True
    packaged = _packaged(environment)
    return packaged is not None and packaged.explains_signals


def leave_to_platform(
    reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
) -> bool:
    """An agent without an owner asks the platform to start the job again, or to end it, where no process of the job is
    left that could. `done` is called when nothing is left to do; False: nothing is asked."""
    platform = platform_here(environment)
    return platform is not None and platform.orphaned(reactor, say, environment, done)


def watch_of(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> JobWatch | None:
    """The watch over this owner's job; None: no platform watches it."""
    platform = platform_here(environment)
    return None if platform is None else platform.watch(spec, reactor, say, environment)


def exit_status(code: int, environment: Mapping[str, str]) -> int:
    """The exit status of the owner's process where the job's final code is `code`."""
    platform = platform_around(environment) if code else None
    return code if platform is None else platform.exit_status(code)


# ------------------------------------------------------------------------------------------------------ queues, nodes


def queue_of(platform: str) -> JobQueue | None:
    """The queue of a platform; None: it has none, or is not installed here."""
    found = platform_named(platform)
    return None if found is None else found.queue()


def title_of(platform: str) -> str:
    """How people call a platform."""
    found = platform_named(platform)
    return platform if found is None else found.title


def started_again(jobs: Iterable[JobView]) -> dict[str, str]:
    """Of jobs without a supervisor, those that their platform will or may start again, by id, each with the reason."""
    from holdfast.platforms.job_queue import QueueUnknown

    found = {}
    for view in jobs:
        queue = queue_of(view.platform.platform) if view.platform is not None else None
        if view.platform is None or queue is None:
            continue
        known = queue.entries()
        if isinstance(known, QueueUnknown):
            if known.passes:
                found[view.id] = known.why
            continue
        entry = known.get(view.platform.id)
        if entry is not None and queue.may_begin(entry):
            why = f" ({entry.reason})" if entry.reason else ""
            found[view.id] = f"{title_of(view.platform.platform)} has it in its queue: {entry.state}{why}"
    return found


def all_node_hooks() -> Iterator[NodeHooks]:
    """The hooks of the built-in platforms that have any."""
    for row in BUILT_IN:
        found = platform_named(row.name)
        hooks = found.node_hooks() if found is not None else None
        if hooks is not None:
            yield hooks
