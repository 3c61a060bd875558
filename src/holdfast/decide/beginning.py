"""How an attempt begins: a number, its checks, and seats for its ranks."""

from __future__ import annotations

from holdfast.decide.course import Course
from holdfast.decide.ending import Ending
from holdfast.decide.orders import Orders
from holdfast.decide.phases import Phase, Trigger
from holdfast.decide.timers import Timer
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.checks import CheckState
from holdfast.model.decisions import DecisionKind


class Beginning:
    """Leads an attempt from its number to PREPARING."""

    def __init__(self, course: Course, orders: Orders, ending: Ending) -> None:
        self._course = course
        self._orders = orders
        self._ending = ending

    def begin(self, now: float) -> None:
        """The next attempt. Its number is durable: the event that led here was written before it was handled."""
        course = self._course
        if course.places() is None:
            self._ending.finish_without_places(now)
            return
        course.attempt = course.highest = course.highest + 1
        course.try_next(now, max(0.0, now - course.entered_at))
        course.entered_at = now
        course.move(Trigger.DUE, now, f"attempt {course.attempt}")
        self.ask_checks(now)

    def ask_checks(self, now: float) -> None:
        course = self._course
        limit_s = course.spec.timers.check_s
        course.arm(Timer.DEADLINE, now + limit_s + course.reset_s)
        nodes = tuple(node.name for node in course.nodes if node.name not in course.avoid)
        checks = course.spec.checks
        course.out.append(
            RunChecks(
                attempt=course.attempt,
                round=course.trial.round,
                nodes=nodes,
                checks=checks,
                deadline_s=limit_s,
                cause=course.cause,
            )
        )

    def checked(self, event: ev.ChecksFinished, now: float) -> None:
        """The checks have answered: go on, look elsewhere, or end the job."""
        course, trial = self._course, self._course.trial
        if (event.attempt, event.round) != (course.attempt, trial.round) or course.phase is not Phase.CHECKING:
            return
        trial.checks = event.taken
        for warning in event.warnings:
            course.say(warning)
        if event.state is not CheckState.FAIL:
            self._prepare(now)
            return
        trial.check = event.failure
        what = event.failure.message if event.failure else "a check failed"
        if event.avoid and not event.fatal:
            course.leave_out(event.avoid, what)
            if course.places() is not None:
                trial.check = None  # the attempt goes on without those nodes: its end has another cause
                trial.round += 1
                course.move(Trigger.CHECK_ELSEWHERE, now, what)
                self.ask_checks(now)
                return
        self._ending.finish_unstarted(Trigger.NOBODY_HEALTHY, now, DecisionKind.FAIL, f"not started: {what}")

    def _prepare(self, now: float) -> None:
        course = self._course
        course.reset_s = 0.0
        seats = course.places()
        if seats is None:
            # What was to help between the attempts (a reset) did not: the last cause stays the job's cause.
            check = course.trial.check = self._ending.too_few()
            last = course.records[-1].report if course.records else None
            self._ending.finish_unstarted(
                Trigger.NOBODY_HEALTHY, now, DecisionKind.FAIL, f"not started: {check.message}", last
            )
            return
        course.trial.seat(seats)
        course.move(Trigger.CHECKS_PASSED, now, f"{len(seats)} workers on {len(course.trial.roster.nodes)} nodes")
        course.arm(Timer.DEADLINE, now + course.spec.timers.prepare_s)
        self._orders.send(now)
