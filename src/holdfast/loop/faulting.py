"""Faults as a station of the supervisor: sources in, the machine's book judges, the gang hears what it means."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.decide.isolation import Change, ChangeKind, JobAnswer, answer_of
from holdfast.errors import HoldfastError
from holdfast.loop.faults import FaultBook
from holdfast.model import events as ev
from holdfast.model.faults import Assertion, FaultEvent, Remedy
from holdfast.model.jobs import JobSpec


class Source(Protocol):
    """Where faults come from (`holdfast.observe.devices.sources`)."""

    missing: str

    def fileno(self) -> int: ...
    def take(self, now: float) -> list[FaultEvent]: ...
    def close(self) -> None: ...


class Faulting:
    """Registered in `selector` with this object as `data`. `ours`: the devices and the node this job may use."""

    def __init__(
        self,
        book: FaultBook,
        sources: Sequence[Source],
        spec: JobSpec,
        ours: frozenset[str],
        selector: selectors.BaseSelector,
        say: Callable[[str], None],
    ) -> None:
        self._book = book
        self._spec = spec
        self._ours = ours
        self._selector = selector
        self._say = say
        self._sources: Mapping[int, Source] = {source.fileno(): source for source in sources if source.fileno() >= 0}
        self._waiting: dict[str, float] = {}
        """Device → when to look again whether its fault is still there (a request may be retried meanwhile)."""
        for fd in self._sources:
            selector.register(fd, selectors.EVENT_READ, self)

    def ready(self, fd: int, now: float) -> list[ev.Event]:
        return self.note(self._sources[fd].take(now), now)

    def note(self, events: Sequence[FaultEvent], now: float) -> list[ev.Event]:
        """Write these down, judge them, and say what they mean for this job. A refused one is said and counted."""
        found: list[ev.Event] = []
        for event in events:
            try:
                changes = self._book.report(event, now)
            except HoldfastError as error:
                self._say(error.message)
                continue
            changed = {change.device for change in changes}
            found += self._mean(changes, now, event)
            if event.device in self._ours and event.device not in changed and event.assertion is not Assertion.RECOVER:
                level = self._book.engine.level(event.device) or Remedy.NONE
                found.append(ev.FaultSeen(fault=event, remedy=level))
        return found

    def refresh(self, now: float) -> list[ev.Event]:
        """Somebody else wrote to the book (`holdfast faults report`, a release)."""
        return self._mean(self._book.sync(now), now, None)

    def next_wake(self) -> float | None:
        wakes = [self._book.engine.next_wake(), *self._waiting.values()]
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> list[ev.Event]:
        found = self.refresh(now)
        for device in [device for device, due in self._waiting.items() if due <= now]:
            del self._waiting[device]
            level = self._book.engine.level(device)
            since = min((at for at, _ in self._book.engine.active(device, level)), default=now) if level else now
            if level is not None:
                change = Change(device=device, node="", before=level, after=level, at=since)
                found += self._mean([change], now, None)
        return found

    def close(self) -> None:
        for fd, source in self._sources.items():
            self._selector.unregister(fd)
            source.close()
        self._book.close()

    def _mean(self, changes: Sequence[Change], now: float, event: FaultEvent | None) -> list[ev.Event]:
        found: list[ev.Event] = []
        for change in changes:
            if change.device not in self._ours:
                continue
            self._say(change.reason)
            if change.kind is not ChangeKind.LEVEL or change.after is None:
                self._waiting.pop(change.device, None)
                continue
            answer = self._answer(change, now)
            if answer.wait_until is not None:
                # Strictly older than the wait: a fault of exactly that age is still left alone.
                self._waiting[change.device] = answer.wait_until + 0.001
            fault = event if event is not None and event.device == change.device else _retold(change)
            found.append(
                ev.FaultSeen(
                    fault=fault,
                    remedy=change.after,
                    stop=answer.stop,
                    avoid=(change.device,) if answer.avoid else (),
                    why=answer.why or change.reason,
                )
            )
        return found

    def _answer(self, change: Change, now: float) -> JobAnswer:
        return answer_of(
            change.device,
            change.after,
            since=change.at,
            now=now,
            kind=self._spec.kind,
            on_subhealth=self._spec.on_subhealth,
        )


def _retold(change: Change) -> FaultEvent:
    """The fault behind a change that no event of this moment made: a deadline, or another process's report."""
    return FaultEvent(
        device=change.device,
        code=change.code or "UNKNOWN",
        assertion=Assertion.OCCUR,
        at=change.at,
        node=change.node,
        text=change.reason,
        source="fault log",
    )
