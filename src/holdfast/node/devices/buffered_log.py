"""Buffers the machine's fault log for a run, because a log that cannot be written must not delay the run.

If another process locks the log, or the disk is full, the run goes on. It judges faults in memory, and puts one message
for the user into `news`. It writes the pending events when the log is writable again, with growing pauses between
retries. It does not write a damaged log again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.decide.faults.fault_overlap import Overlaps
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.isolation import Breaker, FaultEngine, LevelChange
from holdfast.errors import HoldfastError
from holdfast.model.faults import ActiveFault, FaultEvent
from holdfast.node.devices.fault_event_lines import event_refusal
from holdfast.node.devices.fault_log import FaultLog
from holdfast.record.device_standings import StandingsUnusable
from holdfast.record.write_backlog import Backlog

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
#: A stored count of failed resets counts for this many seconds.
TRIES_S = 86_400.0
#: At most this many events are kept in memory while the log cannot be written. Later events take effect, but are never
#: written.
PENDING_MOST = 10_000


class BufferedFaultLog:
    """The faults of a run. It finds the remedies that they require, keeps the faults that overlap an attempt, and
    writes them to the log when possible.

    Times are seconds since the epoch. A device's level is the remedy that its faults require; each method returns the
    changes of levels that it caused. The caller removes accepted events from `events`, and messages for people from
    `news`.

    `log`: the open log; None if it could not be opened. `reopen`: opens the log later; it raises `HoldfastError` on
    failure. `node`: this node's name, for the count of resets.
    """

    def __init__(
        self,
        log: FaultLog | None,
        policy: Policy,
        *,
        reopen: Callable[[float], FaultLog] | None = None,
        node: str = "",
    ) -> None:
        self._node = node
        self.log = log
        self.events: list[FaultEvent] = []
        self.news: list[str] = []
        self.overlaps = Overlaps()
        self._reopen = reopen
        #: Judges faults in memory while the log cannot be written; else None.
        self._ahead = None if log is not None else FaultEngine(policy, breaker=Breaker())
        self._unwritten: Backlog[FaultEvent] = Backlog(PENDING_MOST, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        if log is None:
            self._unwritten.failed(0.0)  # the failed opening of the log counts as the first failed write
        #: New fault rules that are not in the fault log yet.
        self._rules: Policy | None = None
        #: Whether the fault log can never be written in this run.
        self._hopeless = log is None and reopen is None

    @property
    def engine(self) -> FaultEngine:
        if self._ahead is not None:
            return self._ahead
        assert self.log is not None
        return self.log.engine

    def note(self, events: Iterable[FaultEvent], at: float) -> list[LevelChange]:
        """Find the remedies that these fault events require, and write the events to the log."""
        found = list(events)
        if not found:
            return []
        changes = self._try_again(at)
        if self._ahead is None:
            assert self.log is not None
            try:
                more, _, said = self.log.take(found, at)
            except HoldfastError as trouble:
                changes += self._alone(trouble, at)
            else:
                self.news += said
                # Read the events that other processes wrote meanwhile, because the rules apply to events in the log's
                # order.
                self._on_events(_taken(self.log))
                return changes + more
        engine = self.engine
        taken = [event for event in found if not (event_refusal(event, at) or engine.check(event, at))]
        changes += engine.handle_all(taken, at)
        if not self._hopeless:
            for event in taken:
                self._unwritten.keep(event)
        self._on_events(taken)
        return changes

    def sync(self, at: float) -> list[LevelChange]:
        """Read the entries that other processes wrote to the fault log, and apply deadlines that have passed."""
        changes = self._try_again(at)
        if self._ahead is not None:
            return changes + self._ahead.tick(at)
        assert self.log is not None
        missed, self.log.missed = self.log.missed, []
        try:
            changes += [*missed, *self.log.sync(at)]
        except HoldfastError as trouble:
            return [*changes, *missed, *self._alone(trouble, at), *self.engine.tick(at)]
        self._on_events(_taken(self.log))
        return changes

    def reload(self, policy: Policy, at: float) -> list[LevelChange]:
        """Use the fault rules of `policy` from now on. If the log cannot be written, store the rules later. `at`: the
        present time.
        """
        changes = self._try_again(at)
        if self._ahead is None:
            assert self.log is not None
            try:
                return changes + self.log.reload(policy, at)
            except HoldfastError as trouble:
                changes += self._alone(trouble, at)
        self._rules = policy
        return changes + self.engine.reload(policy, at)

    def next_wake(self) -> float | None:
        again = None if self._hopeless else self._unwritten.at
        return min((at for at in (self.engine.next_wake(), again) if at is not None), default=None)

    def tick(self, at: float) -> list[LevelChange]:
        return self.engine.tick(at)

    def tries(self, devices: tuple[str, ...], at: float) -> int:
        """Return how many resets of these devices failed in a row within the last day, in any run."""
        count, noted_at = self.log.store.tries(",".join(devices)) if self.log is not None else (0, 0.0)
        return count if at - noted_at < TRIES_S else 0

    def note_tries(self, devices: tuple[str, ...], count: int, at: float) -> None:
        """Store how many resets of these devices have failed in a row. The number then survives a crash of this
        process.
        """
        if self.log is not None and self._ahead is None:
            self.log.store.note_tries(",".join(devices), count, at)

    def count_reset(self, devices: tuple[str, ...], ok: bool) -> None:
        """Count a finished reset attempt, for the metrics."""
        if self.log is not None and self._ahead is None:
            self.log.store.count_reset(self._node, devices, "succeeded" if ok else "failed")

    def within(self, start: float, end: float, ranks: Mapping[str, tuple[int, ...]]) -> tuple[ActiveFault, ...]:
        """Return the faults that overlapped an attempt (from `start` to `end`), because they may explain its
        failure.
        """
        return self.overlaps.within(start, end, ranks)

    def close(self) -> int:
        """Write the pending events and close the log. Return the number of faults that were not written."""
        if self._unwritten:
            self._unwritten.at_once()
            self._try_again(self.engine.clock / 1000)
        if self.log is not None:
            self._ahead = self.engine
            self.log.close()
            self.log = None
        return len(self._unwritten)

    def _on_events(self, events: list[FaultEvent]) -> None:
        for event in events:
            self.overlaps.note(event, self.engine)
        self.events += events

    def _alone(self, trouble: HoldfastError, at: float) -> list[LevelChange]:
        """Judge faults in memory from now on, because the fault log cannot be written. Return the changes of levels by
        other processes' entries.
        """
        log = self.log
        assert log is not None
        missed, log.missed = log.missed, []
        self._on_events(_taken(log))
        self._ahead = FaultEngine(log.policy, breaker=Breaker())
        self._ahead.load(log.engine.dump())
        if isinstance(trouble, StandingsUnusable) and trouble.passes:
            self.news.append(f"{trouble.message}; faults are judged in memory only until it can be written")
            self._unwritten.failed(at)
        else:
            self._hopeless = True
            self.news.append(f"{trouble.message}; until the run ends faults are judged in memory only")
            log.close()
            self.log = None
        return missed

    def _try_again(self, at: float) -> list[LevelChange]:
        """Write the pending events if a retry is due. The engine of the log then replaces the one in memory. Return the
        changes of the devices' levels (required remedies) between the two engines.
        """
        ahead = self._ahead
        if ahead is None or self._hopeless or not self._unwritten.due(at):
            return []
        try:
            if self.log is None:
                assert self._reopen is not None
                self.log = self._reopen(at)
                self.log.engine.register(ahead.devices)
            if self._rules is not None:
                self.log.reload(self._rules, at)
            self.log.take(self._unwritten, at)
        except HoldfastError:
            self._unwritten.failed(at)
            return []
        self._rules = None
        log, known = self.log, list(self._unwritten)
        self._ahead = None
        self._unwritten.written(len(known))
        self._unwritten.worked()
        log.missed = []
        self._on_events([event for event in _taken(log) if event not in known])
        self.news.append(f"{log.store.path} can be written again: what was reported meanwhile stands there now")
        return [
            LevelChange(device=name, node=device.node if device else "", before=was, after=level, at=at)
            for name, device in log.engine.devices.items()
            if (level := log.engine.level(name)) is not (was := ahead.level(name))
        ]


def _taken(log: FaultLog) -> list[FaultEvent]:
    events = list(log.heard)
    log.heard.clear()
    return events
