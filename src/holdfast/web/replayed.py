"""The owner's view of a running job: the server replays the journal through the same pure gang.

What was replayed is kept, so that a further look handles the new events only.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from pathlib import Path

from holdfast.decide.gang import Gang
from holdfast.decide.phases import Phase
from holdfast.decide.view import GangView
from holdfast.web.remembered import REMEMBERED

MOST_JOBS = 64
MOST_EVENTS = 50_000
"""A job with more of them is shown without its owner's view."""


def waits(view: GangView) -> str:
    """What has to happen before the phase ends; the page says by itself when a pause ends."""
    return "the end of the pause before the next attempt" if view.phase is Phase.BACKOFF else view.waits_for


class Replayed:
    """The gangs of jobs that run. May be asked from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Path, str], tuple[Gang, int]] = OrderedDict()

    def view(self, home: Path, job_id: str) -> GangView | None:
        """The owner's view as of the journal's last event; None where the journal has no such job, or too much."""
        with self._lock:
            gang, handled = self._known.pop((home, job_id), (Gang(), 0))
            for at, event in itertools.islice(REMEMBERED.events(home, job_id), handled, MOST_EVENTS + 1):
                gang.handle(event, at)
                handled += 1
            if not handled or handled > MOST_EVENTS:
                return None
            self._known[home, job_id] = (gang, handled)
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)
            return gang.view()


REPLAYED = Replayed()
"""Of this process."""
