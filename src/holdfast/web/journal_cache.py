"""Caches what the server has read from journals, because ended jobs and recorded events do not change.

A page is built anew for each request, but each event is decoded only once. Several threads may use the cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.model.decisions import AttemptRecord
from holdfast.model.events import Event
from holdfast.record.job_history import JobHistory, job_history
from holdfast.record.job_views import JobView, events_after
from holdfast.record.state_directory import unreadable
from holdfast.report.swimlane import Swimlane, SwimlaneFacts, swimlane_facts, swimlane_from

#: Limit on the cached events of all jobs together. The jobs that were shown last stay in the cache.
MOST_EVENTS = 100_000
MOST_SWIMLANES = 32
Dated = tuple[float, Event]


class JournalCache:
    """Caches what was read from the journals of all state directories of this server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._past: dict[Path, JobHistory] = {}
        self._events: OrderedDict[tuple[Path, str], tuple[int, list[Dated]]] = OrderedDict()
        #: The facts for the swimlanes of running jobs, and from how many events they are.
        self._facts: OrderedDict[tuple[Path, str], tuple[SwimlaneFacts, int]] = OrderedDict()
        self._building = threading.Lock()
        self._swimlanes: OrderedDict[tuple[Path, JobView], Swimlane | None] = OrderedDict()

    def past(self, home: Path) -> JobHistory:
        """Return the newest jobs of a state directory, with their attempts and current states, and a message if it
        cannot be read."""
        seen = job_history(home, before=self._past.get(home))
        if not seen.trouble and (gone := unreadable(home)):
            seen = replace(seen, trouble=gone)
        self._past[home] = seen
        return seen

    def events(self, home: Path, job_id: str) -> Sequence[Dated]:
        """Return the events that the job's journal has now, in order."""
        with self._lock:
            last, known = self._events.pop((home, job_id), (0, []))
            for number, at, event in events_after(home, job_id, last):
                last = number
                known.append((at, event))
            self._events[home, job_id] = last, known
            while len(self._events) > 1 and sum(len(kept) for _, kept in self._events.values()) > MOST_EVENTS:
                self._events.popitem(last=False)
            return tuple(known)

    def swimlane(
        self, home: Path, view: JobView, attempts: Sequence[AttemptRecord], now: float | None
    ) -> Swimlane | None:
        """Return the swimlane of one job; None if the job is unknown.

        `now`: seconds since the epoch, for a running job.
        """
        with self._lock:
            if now is None and (home, view) in self._swimlanes:
                return self._swimlanes[home, view]
        history = self.events(home, view.id)
        with self._building:
            facts, read = self._facts.pop((home, view.id), (SwimlaneFacts(), 0))
            swimlane_facts(history[read:], facts)
            if now is not None:
                self._facts[home, view.id] = facts, max(len(history), read)
            while len(self._facts) > MOST_SWIMLANES:
                self._facts.popitem(last=False)
            found = swimlane_from(facts, attempts, now=now) if history or attempts else None
        if view.ended is not None:
            with self._lock:
                self._swimlanes[home, view] = found
                while len(self._swimlanes) > MOST_SWIMLANES:
                    self._swimlanes.popitem(last=False)
        return found


#: The journal cache of this process.
REMEMBERED = JournalCache()
