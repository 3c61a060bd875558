"""The parts of a node that few runs need: each is imported and made only where the job or the user asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.loop.order import Launch

if TYPE_CHECKING:
    from holdfast.act.host import LocalHost
    from holdfast.act.store.host import Store
    from holdfast.decide.view import GangView
    from holdfast.loop.beside.door import Door
    from holdfast.loop.beside.station import Beside
    from holdfast.loop.cleaning import Cleaning
    from holdfast.loop.hanging import Hanging
    from holdfast.loop.peering import Peering
    from holdfast.loop.prechecks.during import DuringChecks
    from holdfast.loop.timers import Timers
    from holdfast.model.checks import Site
    from holdfast.model.events import Event
    from holdfast.model.links import PeerMeasured, PortOpen
    from holdfast.model.looks import RanksSeen
    from holdfast.model.processes import Fact
    from holdfast.observe.output import Logs, Pump
    from holdfast.observe.stream import Log
    from holdfast.reactor import Reactor
    from holdfast.record.places import JobPlace

Running = Callable[[], int | None]
"""The attempt whose workers are all up; None between attempts."""


def rendezvous_store(
    launch: Launch, reactor: Reactor, processes: Callable[[], list[int]], say: Callable[[str], None]
) -> Store | None:
    """The process that hosts the workers' store; None for a single worker, which the store need not outlive."""
    if launch.spec.world_size < 2:
        return None
    from holdfast.act.store.host import Store

    store = Store(launch.spec, launch.environment, launch.cwd, reactor, processes, say)
    reactor.deadlines(store.next_wake, store.tick)
    return store


def sides_of(
    launch: Launch,
    place: JobPlace,
    host: LocalHost,
    reactor: Reactor,
    node: str,
    learn: Callable[[list[Fact], float], None],
    tell: Callable[[Event], None],
    say: Callable[[str], None],
    logs: Logs | None,
) -> Beside | None:
    """The parts beside the workers, for a job with hooks, daemons or sshd. `learn`: takes facts for the agent. `logs`:
    writes the workers' files."""
    plan = launch.spec.runtime
    if not (plan.hooks or plan.daemons or plan.ssh):
        return None
    from holdfast.loop.beside.attempt import Surroundings
    from holdfast.loop.beside.station import Beside
    from holdfast.loop.masked import without_secrets
    from holdfast.observe.logfile import LogFile

    def open_log(path: Path, source: str) -> Log:
        if logs is not None:
            return logs.open(path, source, shown=False)
        now, kept = reactor.now(), launch.rotation
        return LogFile(
            path, source, lambda text, about: say(text), shown=False, now=now, clock=reactor.now, rotation=kept
        )

    around = Surroundings(
        plan,
        reactor,
        say,
        node=node if launch.nodes is not None else "",
        cwd=launch.cwd,
        logs=place.logs,
        environment=host.environment,
        open_log=open_log,
        parameters=launch.spec.parameters,
        mask=without_secrets,
        door=_door(launch, place),
        let_go=host.ports.give_up,
    )
    station = Beside(around, host, reactor, learn, tell, logs.when_written if logs is not None else None)
    host.heard_by(station.learn)
    return station


def _door(launch: Launch, place: JobPlace) -> Door | None:
    """The ssh server for debugging, where the job asks for one."""
    ssh = launch.spec.runtime.ssh
    if ssh is None:
        return None
    from holdfast.loop.beside.door import Door
    from holdfast.record.places import DOOR

    # Nodes of one job derive the same ssh keys from the job's key. A single node shares its keys with no other.
    secret = launch.nodes.key if launch.nodes is not None else os.urandom(32)
    directory = place.directory / DOOR
    return Door(ssh, directory, place.job_id, secret, launch.environment, many=launch.nodes is not None)


def disk_cleaner(
    launch: Launch, place: JobPlace, host: LocalHost, now: float, say: Callable[[str], None]
) -> Cleaning | None:
    if launch.disk_limit is None:
        return None
    from holdfast.loop.cleaning import Cleaning

    return Cleaning.of_job(launch.disk_limit, place, launch.cwd, host.processes, now=now, say=say)


def forget_logs(logs: Path, last: int) -> None:
    """Remove the logs of the attempts up to this one; logs that were removed before stay removed."""
    import shutil  # few jobs ask for it

    for attempt in range(last, 0, -1):
        directory = logs / f"attempt-{attempt}"
        if not directory.is_dir():
            break
        shutil.rmtree(directory, ignore_errors=True)


def hang_looks(
    view: GangView, logs: Path, reactor: Reactor, host: LocalHost, pump: Pump, tell: Callable[[RanksSeen], None]
) -> Hanging:
    """Looks for the attempt that runs (`view`); made when the owner asks for the first look."""
    from holdfast.loop.hanging import Hanging

    names = {seat.rank: f"{seat.role}-{seat.rank}" for seat in view.seats}
    return Hanging(
        reactor,
        tell,
        pids=host.workers.pids,
        last_output_at=pump.last_output_at,
        progress_file=lambda attempt, rank: logs / f"attempt-{attempt}" / names[rank] / "progress",
        held_back=lambda: pump.paused,
    )


def peering(launch: Launch, reactor: Reactor, tell: Callable[[PortOpen | PeerMeasured], None]) -> Peering:
    """Made when the owner wants to measure the links between nodes."""
    from holdfast.loop.peering import Peering

    return Peering(reactor, launch.nodes.port_range if launch.nodes is not None else None, tell)


def checks_during(
    launch: Launch, site: Site, reactor: Reactor, running: Running, say: Callable[[str], None]
) -> DuringChecks | None:
    """The checks of the plan that also run during a job, if any."""
    if launch.checks is None:
        return None
    from holdfast.loop.prechecks.during import DuringChecks, during

    plan = during(launch.checks)
    return None if plan is None else DuringChecks(plan, launch.spec, site, reactor, running, say)


def torch_timers(
    launch: Launch, job_dir: Path, reactor: Reactor, host: LocalHost, say: Callable[[str], None]
) -> Timers | None:
    if launch.environment.get("TORCHELASTIC_ENABLE_FILE_TIMER") != "1":
        return None
    from holdfast.loop.timers import Timers, timer_file

    path = timer_file(launch.environment, job_dir, launch.cwd)
    assert path is not None
    try:
        return Timers(path, reactor, processes=host.processes, rank_of=host.workers.rank_of, say=say)
    except OSError as error:
        say(f"torch's timers are off: {path}: {error.strerror}")
        return None


def word_of_container(launch: Launch, since: float) -> str:
    """What a container engine has reported about the job's container since then; empty: nothing, or no engine."""
    if launch.container_status is None:
        return ""
    from holdfast.observe.container_word import container_word

    return container_word(launch.container_status, since)
