"""Sends each phase's command to the nodes, and repeats it until each node has obeyed."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_members import GONE
from holdfast.decide.attempt_numbers import AttemptNumbers
from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import Phase
from holdfast.model.actions import Send
from holdfast.model.gang_protocol import Command, Go, MemberState, Prepare, Stop

#: A PREPARE with the addresses of the peers on up to this many nodes is sent within `resend_s`. With more nodes the
#: command is longer, so the time grows in proportion.
AT_ONCE = 100


class Orders:
    """Sends the present phase's command to every node that has not begun to obey it."""

    def __init__(self, gang: GangState, agents: AgentRegistry, numbers: AttemptNumbers) -> None:
        self._gang = gang
        self._agents = agents
        self._numbers = numbers

    def send(self, now: float) -> None:
        """Send the phase's command to every node that has not begun to obey it. Set the timer that repeats this after
        `resend_s`.
        """
        gang = self._gang
        roster, attempt_state = gang.attempt_state.roster, gang.attempt_state
        commands: Iterable[tuple[str, Command]]
        match gang.phase:
            case Phase.PREPARING if not self._numbers.may_prepare(now):
                gang.arm(TimerKind.RESEND, now + gang.spec.timers.resend_s)
                return
            case Phase.PREPARING:
                late = attempt_state.nodes_of(roster.in_state(None, MemberState.NONE))
                commands = [(node, self._prepare(node)) for node in late]
            case Phase.STARTING:
                go = Go(attempt=gang.attempt, term=gang.term)
                commands = [(node, go) for node in attempt_state.nodes_of(roster.missing(MemberState.GOING, *GONE))]
            case Phase.DRAINING:
                stop = Stop(
                    attempt=gang.highest,
                    reason=attempt_state.reason,
                    grace_s=attempt_state.grace_s,
                    save_s=attempt_state.save_s,
                    signal=attempt_state.signal,
                    hold_s=attempt_state.hold_s,
                    within_s=None if attempt_state.kill_by is None else max(0.0, attempt_state.kill_by - now),
                    leftover_s=attempt_state.leftover_s,
                    term=gang.term,
                )
                commands = [(node, stop) for node in attempt_state.nodes if not self._agents.is_stopped(node)]
            case _:
                return
        gang.emit(*(Send(node=node, command=command, cause=gang.cause) for node, command in commands))
        if commands:
            gang.arm(TimerKind.RESEND, now + gang.spec.timers.resend_s * self._patience())

    def _patience(self) -> float:
        """Return the factor for `resend_s`: more than 1 for a PREPARE that lists the peers of a large gang, because it
        takes longer to send.
        """
        attempt_state = self._gang.attempt_state
        if self._gang.phase is not Phase.PREPARING or attempt_state.peers is None:
            return 1.0
        return max(1.0, len(attempt_state.nodes) / AT_ONCE)

    def _prepare(self, node: str) -> Prepare:
        gang, roster = self._gang, self._gang.attempt_state.roster
        placements = tuple(known.placement for known in roster.on(node))
        return Prepare(
            attempt=gang.attempt,
            placements=placements,
            shape=roster.shapes[node],
            meeting=gang.attempt_state.meeting,
            peers=gang.attempt_state.peers,
            term=gang.term,
        )
