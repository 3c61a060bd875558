"""Handles a restarted agent, a restarted owner, and a node with an attempt that the owner does not know."""

from __future__ import annotations

from holdfast.decide import gang_wording
from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_ending import AttemptRecorder
from holdfast.decide.attempt_failures import AttemptFailures
from holdfast.decide.attempt_numbers import AttemptNumbers
from holdfast.decide.attempt_start import AttemptStart
from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.draining import Draining
from holdfast.decide.job_state import GangState
from holdfast.decide.node_commands import Orders
from holdfast.decide.phases import LIVE, Phase
from holdfast.model.actions import FinishJob
from holdfast.model.evidence import MemoryKill
from holdfast.model.gang_protocol import Report


class Reconnects:
    """Repeats the pending commands after a restart, or stops an attempt that the owner does not know."""

    def __init__(
        self,
        course: GangState,
        speakers: AgentRegistry,
        numbers: AttemptNumbers,
        orders: Orders,
        beginning: AttemptStart,
        draining: Draining,
        troubles: AttemptFailures,
        ending: AttemptRecorder,
    ) -> None:
        self._course = course
        self._speakers = speakers
        self._numbers = numbers
        self._orders = orders
        self._beginning = beginning
        self._draining = draining
        self._troubles = troubles
        self._ending = ending

    def agent_is_back(self, node: str, now: float, memory_kill: MemoryKill | None = None) -> bool:
        """Handle a new agent of a node: the earlier one is gone with all its processes, which its guard killed.

        Return True if that ends the attempt. It does not if the node had not begun to prepare the attempt: the owner
        repeats PREPARE. Then the attempt may still run on that node, and only older attempts are certainly over there.
        """
        course = self._course
        untouched = course.phase is Phase.PREPARING and all(k.state is None for k in course.trial.roster.on(node))
        over = course.attempt - 1 if untouched or course.phase is Phase.CHECKING else course.attempt
        self._draining.lose(node, 0.0, back=True, memory_kill=memory_kill)
        self._speakers.began_anew(node, over)
        if course.phase not in LIVE or untouched or node not in course.trial.roster:
            return False
        self._troubles.lose(node, 0.0, f"the agent of {node} started anew", now, back=True, memory_kill=memory_kill)
        return True

    def outrun(self, report: Report, now: float) -> None:
        """Stop an attempt that the owner does not know, on every node, because its nodes are unknown too."""
        course = self._course
        self._numbers.take(report, now)
        if course.phase is Phase.DRAINING:
            self._draining.begin_again(now)
        elif course.phase is not Phase.DONE:
            request = gang_wording.forgotten(report.node, report.attempt, now)
            self._draining.stop_for(request.reason, now, request)

    def owner_is_back(self, now: float) -> None:
        """Repeat the pending commands after the replay of the journal.

        Trust no worker's state until its agent reports.
        """
        course = self._course
        course.raise_term()
        self._speakers.forget((node.name for node in course.nodes), now + course.lease_s())
        if course.phase is Phase.PREPARING:
            course.trial.mark_sent()  # PREPARE may have been sent already; the seats are the same
        if course.phase is Phase.ASSEMBLING:
            # Nodes could not send their hello while there was no owner.
            for timer in (TimerKind.DEADLINE, TimerKind.LAST_CALL):
                course.timers.postpone(timer, now + course.lease_s())
        if course.phase is Phase.CHECKING:
            course.trial.repeat_round()
            self._beginning.ask_checks(now)
        elif course.phase in LIVE:
            course.trial.forget_agents()
            course.arm(TimerKind.CONFIRM, now + course.lease_s())
            self._orders.send(now)
        elif course.phase is Phase.DRAINING:
            self._draining.recovered(now)
        elif course.phase is Phase.QUEUED and course.asked is not None:
            self._ending.ask_again(course.asked.reason)
        elif course.report is not None:
            course.emit(FinishJob(report=course.report, cause=course.cause))

    def confirm(self, now: float) -> None:
        """Stop the attempt if an agent has not reported in time since the owner restarted."""
        course = self._course
        if quiet := course.trial.quiet(preparing=course.phase is Phase.PREPARING):
            names = ", ".join(quiet)
            self._troubles.lose(quiet[0], course.lease_s(), f"{names} did not answer after the owner came back", now)
