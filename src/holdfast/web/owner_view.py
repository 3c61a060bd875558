"""A running job from its owner's view: its gang, the remaining restarts, and the decision after its next failure.

The server replays the journal into a `Gang`, and decides with the same functions as the owner. The replayed state is
cached, so that the next page handles only new events.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.decide.gang import Gang
from holdfast.decide.gang_view import GangView
from holdfast.decide.phases import Phase
from holdfast.decide.recovery import restart_budgets
from holdfast.decide.recovery.recovery import recover
from holdfast.model.decisions import AttemptRecord
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.noun_base import Noun
from holdfast.web.journal_cache import REMEMBERED

MOST_JOBS = 64
#: The page of a job with more events does not show the owner's view (the gang's state and the next decision).
MOST_EVENTS = 50_000


def waits(view: GangView) -> str:
    """Return the event that ends the job's present phase, in words. For a pause it names no time, because another part
    of the page shows the time.
    """
    return "the end of the pause before the next attempt" if view.phase is Phase.BACKOFF else view.waits_for


class ReplayedGangs:
    """The replayed gangs of running jobs. Several threads may use them."""

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


#: The replayed gangs that all pages of this process share.
REPLAYED = ReplayedGangs()


# --------------------------------------------------------------------------------------------- functions about restarts


class Budget(Noun, frozen=True, kw_only=True):
    """One limit on a job's restarts, and how much of it is used."""

    name: str
    used: int
    most: int


def budgets_of(policy: RestartPolicy, attempts: Sequence[AttemptRecord]) -> tuple[Budget, ...]:
    """Return all limits of a job's restarts, with their use by the attempts so far."""
    failed = [record for record in attempts if restart_budgets.failed(record)]
    row = restart_budgets.failures_in_row(failed)
    return (
        Budget(
            name="restarts for failures of the program (--max-restarts)",
            used=restart_budgets.spent_restarts(attempts, charged=True, restored=False),
            most=policy.max_restarts,
        ),
        Budget(
            name="restarts for hardware, network and platform",
            used=restart_budgets.spent_restarts(attempts, charged=False, restored=False),
            most=policy.platform_max_restarts,
        ),
        Budget(name="failures in a row without progress", used=row, most=policy.max_in_a_row),
    )


def next_failure(policy: RestartPolicy, attempts: Sequence[AttemptRecord], now: float) -> str:
    """Return the decision that the owner would make if the job failed now in the same way as last time. If the job has
    not failed yet, assume a failure of its program.
    """
    if not attempts:
        if policy.max_restarts == 0:
            return "Any failure ends the job: restarts are switched off (--max-restarts 0)."
        return f"A failure of the program costs restart 1 of {policy.max_restarts}, unless it would surely fail again."
    last = msgspec.structs.replace(attempts[-1].report, attempt=attempts[-1].attempt + 1)
    decision = recover(last, policy, attempts, now=now, jitter=0.5, spare=False)
    return f"{last.phrase} once more, without further progress: {decision.kind.value}: {decision.reason}."
