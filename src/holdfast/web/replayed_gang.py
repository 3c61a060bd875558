"""The owner's view of a running job: the server replays the journal through the same pure `Gang`.

The replayed state is cached, so that the next page handles only new events.
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
    """Return what the phase waits for. The page itself shows when a pause ends."""
    return "the end of the pause before the next attempt" if view.phase is Phase.BACKOFF else view.waits_for


class ReplayedGangs:
    """The replayed gangs of running jobs. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Path, str], tuple[Gang, int]] = OrderedDict()

    def view(self, home: Path, job_id: str) -> GangView | None:
        """Return the owner's view after the journal's last event.

        None: the journal has no such job, or the job has more than `MOST_EVENTS` events.
        """
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


#: The cache of this process.
REPLAYED = ReplayedGangs()
