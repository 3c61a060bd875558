"""Handles device faults in the supervisor: it reads their sources, finds the required remedies, and delays checks
during a reset.

A run without faults costs almost nothing. The sources' files are opened before the workers start, and read a moment
after it. If the job has devices, the rules, the catalogues and the fault log are loaded then, too; otherwise at the
first fault.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.decide.phases import Phase
from holdfast.decide.placement import place, users
from holdfast.errors import HoldfastError
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.faults import FaultEvent
from holdfast.model.job_spec import Placement
from holdfast.node import devices
from holdfast.node.devices.device_locks import DeviceLocks, LockWaiter
from holdfast.node.devices.policy_reload import RuleFiles
from holdfast.node.devices.run_fault_sources import FaultSources, WatchedJob
from holdfast.record.local_time import local
from holdfast.record.write_backlog import Retries
from holdfast.wire.fault_news import notify_all

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.node.devices.fault_log import FaultLog
    from holdfast.node.devices.job_faults import JobFaults
    from holdfast.reactor import Reactor

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 30.0
#: Seconds for reading the last fault reports at an attempt's end. Without the limit, a flood of reports would never
#: end.
LAST_WORDS_S = 0.5
#: Milliseconds to wait for another writer of the fault log. During the wait, workers' output and exits are not handled.
BUSY_MS = 200
#: A driver may log a report up to this many seconds after the fault began.
SLACK_S = 5.0


_TO_LISTEN = (
    "holdfast.catalogue.fault_codes", "holdfast.observe.devices.reported_faults",
    "holdfast.observe.devices.kernel_faults",
    "holdfast.observe.devices.fault_sources", "holdfast.observe.devices.fault_socket",
)  # fmt: skip
#: The modules that judge faults. Each comes after the modules that it imports, so that each import is short.
_TO_JUDGE = (
    "yaml.reader", "yaml.scanner", "yaml.resolver", "yaml", "datetime", "subprocess",
    "holdfast.decide.faults.fault_remedies",
    "holdfast.decide.faults", "holdfast.decide.faults.fault_engine", "holdfast.decide.faults.graceful_tolerance",
    "holdfast.node.devices.nvml_watch", "holdfast.node.devices.device_resets", "holdfast.node.devices.job_faults",
    "holdfast.node.devices.policy_files",
    "holdfast.node.devices.fault_log", "holdfast.node.devices.buffered_log", "holdfast.record.held_devices",
)  # fmt: skip


class Checker(Protocol):
    """Runs pre-checks."""

    def begin(self, order: RunChecks, now: float) -> list[ev.Event]: ...


class DeviceUse(msgspec.Struct, frozen=True):
    """Functions that return how the job uses its devices now."""

    #: Returns which rank uses which device.
    placements: Callable[[], Sequence[Placement]]
    #: Returns the devices that the job may not use.
    avoided: Callable[[], Collection[str]]
    #: Returns the rank of a process, or None if the process is not a worker.
    rank_of: Callable[[int], int | None]


class DeviceFaults:
    """Reads the sources of device faults, decides the consequences for the job, and delays checks during a reset.

    `use`: how the job uses the devices. `checker`: runs the pre-checks. `say`: prints a message to the user.
    """

    def __init__(
        self,
        job: WatchedJob,
        use: DeviceUse,
        *,
        checker: Checker,
        reactor: Reactor,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._job = job
        self._node = job.node
        self._use = use
        self._checker = checker
        self._reactor = reactor
        self._say = say
        self._phase = Phase.BACKOFF
        self._since = 0.0
        self._listening = FaultSources(
            job,
            reactor=reactor,
            clock=clock,
            reported=lambda events, now: self._released(self.note(events, now), now),
            device_of=self._device_of,
            known=self._known,
            say=say,
        )
        self._rules = RuleFiles(job.options.codes, job.options.rules, reactor=reactor, say=say)
        self._judge: JobFaults | None = None
        self._broken = False
        #: When to open the fault log again, while no fault needs it.
        self._retries = Retries(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._held: RunChecks | None = None
        self._to_reset: tuple[str, ...] = ()
        self._devices = DeviceLocks(job.home, job.node.name, say)
        #: Waits until another job's reset of this job's devices has ended; None if no other job resets one.
        self._others: LockWaiter | None = None

    # ----------------------------------------------------------------------- methods for the start and the end of a run

    def open(self, now: float) -> None:
        """Open the fault sources just before the job is submitted, so that no later fault report is missed."""
        self._since = now
        self._listening.open(now)

    def entered(self, phase: Phase, now: float) -> list[ev.Event]:
        """Handle a new phase of the gang."""
        self._phase = phase
        if phase is Phase.BACKOFF and self._node.devices:
            self._devices.let_go(self._node.devices)
        return self._judge.entered(phase, now) if self._judge is not None else []

    def listen(self, now: float) -> Iterator[object]:
        """Start to read the fault sources (files and a socket). If the job has devices, load the rules.

        Yields after each short step, so that the caller can do other work in between.
        """
        for part in _TO_LISTEN:
            yield importlib.import_module(part)
        if self._rules.given:
            self._watch_rules()
            yield None
        self._listening.start()
        yield None
        if self._node.devices:
            for part in _TO_JUDGE:
                yield importlib.import_module(part)

            yield devices.all_codes()
            yield self._load(now)

    def close(self) -> None:
        refused = self._listening.refused()
        if refused:
            why = ", ".join(f"{count} {reason}" for reason, count in refused.most_common())
            many = "1 line" if refused.total() == 1 else f"{refused.total()} lines"
            self._say(f"of what was reported to this run {many} could not be believed: {why}")
            if self._judge is not None:
                self._judge.count_refused(refused)
            else:
                self._count_refused(refused)
        self._listening.close()
        self._rules.close()
        if self._others is not None:
            self._reactor.forget(self._others.pidfd)
            self._others.give_up()
        if self._judge is not None:
            self._judge.close()
        self._devices.close()

    # ----------------------------------------------------------------------------------- methods that the reactor calls

    def _reset_moves(self, fd: int, now: float) -> list[ev.Event]:
        return self._released(self._judge.ready(fd, now) if self._judge is not None else [], now)

    def _others_are_done(self, fd: int, now: float) -> list[ev.Event]:
        self._reactor.forget(fd)
        if self._others is not None:
            self._others.ended()
            self._others = None
        # The other job's reset is over, and the fault log has its result.
        return self.refresh(now)

    def next_wake(self) -> float | None:
        wakes = (self._judge.next_wake() if self._judge is not None else self._retries.at, self._rules.next_wake())
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> list[ev.Event]:
        found = self._reload(now)
        if self._judge is None and self._retries.at is not None:
            return found + self.refresh(now)
        return self._released([*found, *(self._judge.tick(now) if self._judge is not None else [])], now)

    # ------------------------------------------------------------------------ methods that other parts of the node call

    def note(self, events: Sequence[FaultEvent], now: float) -> list[ev.Event]:
        """Judge faults that this process has found or received. Notify the other runs on this machine, which may use
        the same devices.
        """
        judge = self._load(now, must=True) if events else None
        if judge is None:
            return []
        found = judge.note(events, now)

        notify_all(self._job.home)
        return found

    def refresh(self, now: float) -> list[ev.Event]:
        """Read the fault log after another process wrote to it."""
        judge = self._load(now)
        return self._released(judge.refresh(now) if judge is not None else [], now)

    def begin(self, order: RunChecks, now: float) -> list[ev.Event]:
        """Begin the checks of the next attempt when no device is being reset."""
        self._held = order
        found: list[ev.Event] = []
        if self._judge is not None and self._to_reset:
            devices, self._to_reset = self._to_reset, ()
            found = self._judge.reset_first(devices, now)
        return self._released(found, now)

    def awaiting_reset(self, devices: Sequence[str], now: float) -> tuple[str, ...]:
        """Return the excluded devices that will be reset before the job starts. The job can use them after the
        reset.
        """
        if self._job.options.reset_command is None or not devices:
            return ()
        judge = self._load(now)
        self._to_reset = judge.awaiting_reset(devices) if judge is not None else ()
        return self._to_reset

    def last_words(self, now: float) -> list[ev.Event]:
        """Read all fault reports up to now. The attempt's workers have ended, so the reports belong to this attempt."""
        found: list[ev.Event] = []
        end = self._reactor.now() + LAST_WORDS_S
        while (unread := self._listening.unread()) and self._reactor.now() < end:
            for fd in unread:
                found += self.note(self._listening.take(fd, now), now)
        return found

    def complete(self, evidence: AttemptEvidence, started_at: float, now: float) -> AttemptEvidence:
        """Return the evidence with the attempt's faults that it lacks added. `started_at`: when the attempt began."""
        if self._judge is None:
            return evidence
        placements = self._use.placements()
        names = {self._node.name, *self._node.devices}
        ranks = {name: used for name in names if (used := users(name, placements, (self._node,)))}
        known = {(fault.event.device, fault.event.code, fault.event.at) for fault in evidence.faults}
        more = [
            fault
            for fault in self._judge.overlapping(started_at, now, ranks)
            if (fault.event.device, fault.event.code, fault.event.at) not in known
        ]
        return replace(evidence, faults=(*evidence.faults, *more))

    # ------------------------------------------------------------------------------------------ private methods

    def _watch_rules(self) -> None:
        try:
            self._rules.watch()
        except HoldfastError as error:
            self._say(f"edits of the fault rules are not seen: {error.message}")

    def _reload(self, now: float) -> list[ev.Event]:
        """Apply an edit of the fault codes or rules. Notify the other runs with this state directory, because they use
        the same rules.
        """
        policy = self._rules.take(now)
        if policy is None or self._judge is None:
            return []
        found = self._judge.reload(policy, now)

        notify_all(self._job.home)
        return found

    def _count_refused(self, refused: Mapping[str, int]) -> None:
        """Store how many lines of the fault sources were rejected (for `holdfast devices`). The run has written nothing
        else to the fault log.
        """

        try:
            log = devices.Standings.for_writing(self._job.home, busy_ms=BUSY_MS)
        except HoldfastError:
            # Ignore the error: the count was printed before, and the run must end without the fault log too.
            return
        for reason, count in refused.items():
            log.count_refused(reason, count)
        log.close()

    def _released(self, events: list[ev.Event], now: float) -> list[ev.Event]:
        """Begin the waiting checks, unless a reset blocks them. Return `events` with the checks' events added."""
        judge = self._judge
        if self._held is None or (judge is not None and judge.resetting) or not self._granted():
            return events
        order, self._held = self._held, None
        more = judge.begin(now) if judge is not None else []
        return [*events, *more, *self._checker.begin(order, now)]

    def _granted(self) -> bool:
        """Return whether no other job resets this job's devices. If one does, wait for the reset's end."""
        avoided = self._use.avoided()
        devices = [device for device in self._node.devices if device not in avoided]
        if self._others is not None or (devices and not self._devices.share(devices)):
            if self._others is None:
                self._say(f"another job resets one of {', '.join(devices)}; the start waits for its end")
                self._others = self._devices.wait(devices, alone=False)
                self._reactor.watch(self._others.pidfd, self._others_are_done)
            return False
        return True

    def _spare(self, device: str) -> bool:
        return place(self._job.spec, (self._node,), {*self._use.avoided(), device}) is not None

    def _device_of(self, pid: int) -> str:
        rank = self._use.rank_of(pid)
        return next((placement.device for placement in self._use.placements() if placement.rank == rank), "")

    def _known(self, code: str) -> bool:

        key = devices.canonical(code)
        return key in devices.all_codes() or (self._judge is not None and self._judge.knows(key))

    def _load(self, now: float, *, must: bool = False) -> JobFaults | None:
        """Load the rules and the fault log; return None if that fails.

        If the log cannot be opened (for example, locked for a moment), later calls try again with growing pauses.
        `must`: a fault must be judged now, in memory if the log cannot be opened.
        """
        if self._judge is not None or self._broken:
            return self._judge

        options = self._job.options
        try:
            policy = self._rules.policy()
        except HoldfastError as error:
            self._broken = True
            self._say(f"faults of devices are not watched: {error.message}")
            return None

        def opened(at: float) -> FaultLog:
            since = self._since - SLACK_S
            return devices.FaultLog(
                self._job.home, self._rules.policy(), at, writable=True, since=since, busy_ms=BUSY_MS
            )

        log: FaultLog | None = None
        try:
            log = opened(now)
        except HoldfastError as error:
            if not must:
                if self._retries.failed(now):
                    self._say(f"{error.message}; it is tried again")
                return None
            self._say(f"{error.message}; faults are judged in memory only until it can be written")
        faults = devices.BufferedFaultLog(log, policy, reopen=opened, node=self._node.name)
        faults.engine.register(self._node.devices)
        resets = devices.Resets(
            devices.ResetCommand(options.reset_command, group=options.reset_group, logs=self._job.directory),
            policy.grace,
            self._reactor,
            self._reset_moves,
            devices.DeviceUsers(DeviceLocks(self._job.home, self._node.name, self._say)),
            self._say,
            faults,
        )
        self._judge = devices.JobFaults(
            faults,
            resets,
            self._job.spec,
            self._node,
            self._say,
            self._spare,
            lambda found: devices.publish(self._node.name, found),
        )
        devices.publish(
            self._node.name, devices.standings(faults.engine, local)
        )  # publish the devices' states at every start, because a reboot has removed them
        if self._phase not in (Phase.BACKOFF, Phase.DONE):
            self._judge.begin(now)
        return self._judge
