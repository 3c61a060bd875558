"""Runs the hooks after an attempt.

The owner explains the attempt's end, lets the nodes run the hooks, and only then decides what follows. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.job_state import GangState
from holdfast.model import events as ev
from holdfast.model.actions import RunHooks
from holdfast.model.evidence import AttemptEvidence, StopRequest
from holdfast.model.exit_report import Outcome
from holdfast.model.sidecar_ends import AttemptEnd, hooks_after_s

#: Seconds that the nodes may take to report the results of their hooks, in addition to the hooks' own time limits.
ANSWER_S = 10.0


class AfterHooks:
    """Makes each node run the job's hooks once after the present attempt."""

    def __init__(self, gang: GangState, understand: Callable[[AttemptEvidence, float, bool], None]) -> None:
        """`gang`: the job's state. `understand(evidence, now, hooked)`: explains the attempt's end a second time, now
        with the results of the hooks.
        """
        self._gang = gang
        self._understand = understand

    def begin(self, now: float) -> bool:
        """Send each node the request to run its hooks. Return False if the job has no hook to run now."""
        gang, attempt_state = self._gang, self._gang.attempt_state
        found, limit_s = attempt_state.found, hooks_after_s(gang.spec.runtime)
        if found is None or not limit_s or attempt_state.resumed:
            return False
        nodes = tuple(node for node in attempt_state.nodes if self._can_answer(node))
        if not nodes:
            return False
        if any(stop is not None and stop.grace_s == 0 for stop in (gang.stop, attempt_state.stop)):
            gang.say(f"attempt {gang.attempt}: the stop leaves no time: no hook runs after it")
            return False
        report = found.report
        succeeded = attempt_state.completed and report.code == 0
        stopped = gang.stop is not None and gang.stop is attempt_state.stop
        end = AttemptEnd(
            outcome=Outcome.SUCCEEDED if succeeded else Outcome.STOPPED if stopped else Outcome.FAILED,
            phrase=report.phrase,
            code=report.code,
            reason=report.reason,
        )
        within_s = self._left(now)
        attempt_state.run_hooks(
            RunHooks(attempt=gang.attempt, nodes=nodes, end=end, limit_s=limit_s, within_s=within_s, cause=gang.cause)
        )
        self._ask(now)
        return True

    def finished(self, event: ev.HooksFinished, now: float) -> None:
        """Handle the results of the nodes' hooks. A failed hook makes a successful attempt fail."""
        gang, attempt_state = self._gang, self._gang.attempt_state
        if attempt_state.hooks is None or attempt_state.found is None or event.attempt != gang.attempt:
            return
        attempt_state.run_hooks(None)
        if event.unanswered:
            self._say_unanswered(event.unanswered)
        if attempt_state.completed and event.failures:
            self._understand(replace(attempt_state.found.evidence, beside=event.failures), now, True)
            return
        for failure in event.failures:
            gang.say(f"attempt {gang.attempt}: {failure.sentence}")
        gang.arm(TimerKind.DECIDE, now)

    def hurry(self, request: StopRequest, now: float) -> None:
        """Shorten the time limit of running hooks, because a stop was requested."""
        attempt_state, spec = self._gang.attempt_state, self._gang.spec
        if attempt_state.hooks is None or not request.final:
            return
        attempt_state.limit(request, now)
        grace_s = spec.timers.grace_s if request.grace_s is None else request.grace_s
        within = [
            seconds for seconds in (grace_s, self._left(now), attempt_state.hooks.within_s) if seconds is not None
        ]
        attempt_state.run_hooks(replace(attempt_state.hooks, within_s=min(within), stop=True))
        self._ask(now)

    def lose(self, node: str, now: float) -> None:
        """Stop waiting for the hooks of a lost node. The hooks cannot outlive the node."""
        gang, attempt_state = self._gang, self._gang.attempt_state
        if attempt_state.hooks is None or node not in attempt_state.hooks.nodes:
            return
        left = tuple(name for name in attempt_state.hooks.nodes if name != node)
        if left:
            fewer = replace(attempt_state.hooks, nodes=left)
            attempt_state.run_hooks(fewer)
            gang.emit(fewer)
            return
        attempt_state.run_hooks(None)
        gang.arm(TimerKind.DECIDE, now)

    def overdue(self, now: float) -> None:
        """Go on to the decision, because the time limit is over. Some nodes sent no hook results."""
        gang = self._gang
        assert gang.attempt_state.hooks is not None, "the deadline is theirs"
        self._say_unanswered(gang.attempt_state.hooks.nodes)
        gang.attempt_state.run_hooks(None)
        gang.arm(TimerKind.DECIDE, now)

    def ask_again(self, now: float) -> None:
        """Repeat the request to run the hooks, after a restart of the owner."""
        self._ask(now)

    def _say_unanswered(self, nodes: Sequence[str]) -> None:
        gang = self._gang
        gang.say(f"attempt {gang.attempt}: no word of {', '.join(nodes)} about the hooks after the attempt")

    def _ask(self, now: float) -> None:
        gang, order = self._gang, self._gang.attempt_state.hooks
        assert order is not None, "it is asked for"
        within_s = order.limit_s if order.within_s is None else min(order.limit_s, order.within_s)
        gang.arm(TimerKind.DEADLINE, now + within_s + ANSWER_S)
        gang.emit(order)

    def _left(self, now: float) -> float | None:
        """Return the seconds until the platform kills all processes of the attempt; None if the platform has announced
        no such time.
        """
        kill_by = self._gang.attempt_state.kill_by
        return None if kill_by is None else max(0.0, kill_by - now)

    def _can_answer(self, node: str) -> bool:
        attempt_state = self._gang.attempt_state
        return not (node in attempt_state.lost or node in attempt_state.fenced or node in attempt_state.left)
