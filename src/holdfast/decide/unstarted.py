"""How an attempt ends that has failed before it had workers: a prerequisite could not be had."""

from __future__ import annotations

from holdfast.decide.course import Course
from holdfast.decide.draining import Draining
from holdfast.decide.phases import Trigger


def fail_unstarted(course: Course, draining: Draining, reason: str, now: float) -> None:
    """Nothing is stopped, and no node has more evidence: it is explained at once, and decided like any other.

    What could not be fetched on one node cannot be had on another one either, so none is looked for.
    """
    trial = course.trial
    course.caused_by_this()
    trial.failed_in, trial.reason = course.phase.value, reason
    course.move(Trigger.TROUBLE, now, reason)
    trial.collecting, trial.drained_at = True, now
    draining.understand(trial.evidence(course.phase, course.job_id), now)
