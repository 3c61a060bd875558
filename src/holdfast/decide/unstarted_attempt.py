"""How an attempt ends that failed before it had workers: a prerequisite could not be fetched."""

from __future__ import annotations

from holdfast.decide.draining import Draining
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import PhaseTrigger


def fail_unstarted(course: GangState, draining: Draining, reason: str, now: float) -> None:
    """No worker has to be stopped, and no node has more evidence: explain and decide at once, as for any attempt.

    A prerequisite that one node could not fetch is unavailable to the others as well, so no other node is tried.
    """
    trial = course.trial
    course.caused_by_this()
    trial.fail_in(course.phase.value, reason)
    course.move(PhaseTrigger.TROUBLE, now, reason)
    trial.collect(now)
    draining.understand(trial.evidence(course.phase, course.job_id), now)
