"""Makes the parts of a node that only few jobs need."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.launch.launch_spec import LaunchSpec
from holdfast.node import prechecks, rare_parts, sidecars
from holdfast.node.torch_timers import TorchTimers, timer_file
from holdfast.observe.log_file import LogFile
from holdfast.record.job_directory import SSH_FOLDER

if TYPE_CHECKING:
    from holdfast.act.host import LocalHost
    from holdfast.act.store.store_process import Store
    from holdfast.model.check_results import Site
    from holdfast.model.events import Event
    from holdfast.model.process_messages import Fact
    from holdfast.node.disk_cleaner import DiskCleaner
    from holdfast.node.node_part import NodePart
    from holdfast.node.prechecks.checks_during_job import DuringChecks
    from holdfast.node.sidecars.node_sidecars import NodeSidecars
    from holdfast.node.sidecars.ssh_server import SshServer
    from holdfast.observe.output_places import OutputPlaces
    from holdfast.observe.worker_stream import StreamLog
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace

#: Returns the attempt whose workers are all up; None between attempts.
Running = Callable[[], int | None]


def rendezvous_store(
    launch: LaunchSpec, reactor: Reactor, processes: Callable[[], list[int]], say: Callable[[str], None]
) -> Store | None:
    """Return the process that hosts the workers' rendezvous store; None for a job with a single worker, which needs
    none. `processes`: returns the pids of the job's processes. `say`: prints a message.
    """
    if launch.spec.world_size < 2:
        return None
    store = rare_parts.store_process.Store(launch.spec, launch.environment, launch.cwd, reactor, processes, say)
    reactor.deadlines(store.next_wake, store.tick)
    return store


def sides_of(
    part: NodePart,
    out: OutputPlaces,
    host: LocalHost,
    reactor: Reactor,
    learn: Callable[[list[Fact], float], None],
    tell: Callable[[Event], None],
) -> NodeSidecars | None:
    """Create the node's sidecars for a job with hooks, daemons or sshd.

    `learn`: passes facts about processes to the agent. `tell`: sends events to the owner.
    """
    launch, place, logs = part.launch, part.place, out.logs
    plan = launch.spec.runtime
    if not (plan.hooks or plan.daemons or plan.ssh):
        return None

    def open_log(path: Path, source: str) -> StreamLog:
        if logs is not None:
            return logs.open(path, source, shown=False)
        now, kept = reactor.now(), launch.rotation
        return LogFile(
            path, source, lambda text, about: out.say(text), shown=False, now=now, clock=reactor.now, rotation=kept
        )

    around = sidecars.SidecarContext(
        launch=launch,
        logs=place.logs,
        node=part.node.name if launch.nodes is not None else "",
        host=host,
        reactor=reactor,
        open_log=open_log,
        ssh_server=_ssh_server(launch, place),
        say=out.say,
    )
    station = sidecars.NodeSidecars(around, host, reactor, learn, tell, logs.when_written if logs is not None else None)
    host.heard_by(station.learn)
    return station


def _ssh_server(launch: LaunchSpec, place: JobPlace) -> SshServer | None:
    """Return the ssh server for debugging; None if the job requests none."""
    ssh = launch.spec.runtime.ssh
    if ssh is None:
        return None
    # All nodes of a job must have the same ssh keys, so they derive them from the job's key. A job on one node uses a
    # random key.
    secret = launch.nodes.key if launch.nodes is not None else os.urandom(32)
    directory = place.directory / SSH_FOLDER
    return sidecars.SshServer(ssh, directory, place.job_id, secret, launch.environment, many=launch.nodes is not None)


def disk_cleaner(part: NodePart, host: LocalHost, now: float, say: Callable[[str], None]) -> DiskCleaner | None:
    launch = part.launch
    if launch.disk_limit is None:
        return None
    own = {part.place.directory.resolve(), part.place.logs.resolve()}
    return rare_parts.disk_cleaner.DiskCleaner(
        launch.disk_limit,
        job_dir=part.place.directory,
        places=(*own, launch.cwd),
        own=own,
        pids=host.processes,
        now=now,
        say=say,
    )


def forget_logs(logs: Path, last: int) -> None:
    """Remove the logs of attempt `last` and of the attempts before it. Stop at the first attempt without logs."""
    import shutil  # imported late, because few jobs remove logs

    for attempt in range(last, 0, -1):
        directory = logs / f"attempt-{attempt}"
        if not directory.is_dir():
            break
        shutil.rmtree(directory, ignore_errors=True)


def checks_during(
    launch: LaunchSpec, site: Site, reactor: Reactor, running: Running, say: Callable[[str], None]
) -> DuringChecks | None:
    """Return the runner of the checks during the job; None if there are no such checks."""
    if launch.checks is None:
        return None
    plan = prechecks.during(launch.checks)
    return None if plan is None else prechecks.DuringChecks(plan, launch.spec, site, reactor, running, say)


def torch_timers(part: NodePart, reactor: Reactor, host: LocalHost, say: Callable[[str], None]) -> TorchTimers | None:
    """Return the object that serves torch's timers; None if the job does not use them."""
    launch = part.launch
    path = timer_file(launch.environment, part.place.directory, launch.cwd)
    if path is None:
        return None
    try:
        return TorchTimers(path, reactor, processes=host.processes, rank_of=host.workers.rank_of, say=say)
    except OSError as error:
        say(f"torch's timers are off: {path}: {error.strerror}")
        return None
