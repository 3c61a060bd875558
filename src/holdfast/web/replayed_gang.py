"""The owner's view of a running job: the server replays the journal through the same pure gang.

The replayed state is kept, so that the next page handles only the new events.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from pathlib import Path

from holdfast.decide.gang import Gang
from holdfast.decide.gang_view import GangView
from holdfast.decide.phases import Phase
from holdfast.web.journal_cache import REMEMBERED

MOST_JOBS = 64
#: A job with more events is shown without its owner's view.
MOST_EVENTS = 50_000


def waits(view: GangView) -> str:
    """What must happen before the phase ends; the page itself shows when a pause ends."""
    return "the end of the pause before the next attempt" if view.phase is Phase.BACKOFF else view.waits_for


class ReplayedGangs:
    """The gangs of running jobs. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Path, str], tuple[Gang, int]] = OrderedDict()

    def view(self, home: Path, job_id: str) -> GangView | None:
        """The owner's view after the journal's last event; None where the journal has no such job, or too many
        events."""
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


#: Of this process.
REPLAYED = ReplayedGangs()
