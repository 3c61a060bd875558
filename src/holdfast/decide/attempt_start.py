"""Begins an attempt: chooses its nodes and its number, runs the checks, and assigns the ranks to nodes."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.decide.attempt_ending import AttemptRecorder
from holdfast.decide.attempt_timers import TimerKind, fetch_limit_s
from holdfast.decide.draining import Draining
from holdfast.decide.job_state import GangState
from holdfast.decide.node_assembly import Assembly
from holdfast.decide.node_commands import Orders
from holdfast.decide.phases import Phase, PhaseTrigger
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import CheckFailure
from holdfast.model.human_format import counted
from holdfast.model.job_spec import Placement
from holdfast.model.peer_addresses import gather, ports_needed
from holdfast.model.sidecar_ends import hooks_before_s


class AttemptStart:
    """Leads an attempt up to PREPARING: chooses its nodes and its number, runs the checks, and places the ranks."""

    def __init__(self, gang: GangState, orders: Orders, ending: AttemptRecorder, draining: Draining) -> None:
        self._gang = gang
        self._orders = orders
        self._ending = ending
        self._draining = draining
        #: Tracks which nodes are present, for jobs that may have several nodes.
        self.assembly = Assembly(gang)

    # -------------------------------------------------------------------------------- gathering enough nodes

    def begin(self, now: float) -> None:
        """Begin the next attempt, or wait for more nodes."""
        gang = self._gang
        if gang.many and not self.assembly.enough() and self.assembly.may_wait():
            self.assembly.wait(now)
        else:
            self._number(PhaseTrigger.DUE, now)

    def assembled(self, now: float) -> None:
        """Begin the attempt, or repeat its checks, because enough nodes have joined."""
        if self._gang.pending:
            self._gang.move(PhaseTrigger.ENOUGH_NODES, now, "the attempt goes on")
            self._ask_again(now)
        else:
            self._number(PhaseTrigger.ENOUGH_NODES, now)

    def _number(self, trigger: PhaseTrigger, now: float) -> None:
        """Give the next attempt its number. `trigger`: the phase transition to make."""
        gang = self._gang
        if gang.places() is None:
            self._ending.finish_without_places(now)
            return
        gang.begin_attempt(now)
        gang.move(trigger, now, f"attempt {gang.attempt}")
        self.ask_checks(now)

    # ------------------------------------------------------------------------------ running the checks

    def ask_checks(self, now: float) -> None:
        gang = self._gang
        limit_s, fetch_s = gang.spec.timers.check_s, fetch_limit_s(gang.spec)
        gang.arm(TimerKind.DEADLINE, now + limit_s + fetch_s + gang.reset_s)
        nodes = gang.here()
        gang.attempt_state.begin_round(nodes, gang.first_node() if gang.many else "", gang.ports_to_ask())
        gang.emit(
            RunChecks(
                attempt=gang.attempt,
                round=gang.attempt_state.round,
                nodes=nodes,
                checks=gang.spec.checks,
                deadline_s=limit_s,
                fetch_s=fetch_s,
                meet_on=gang.attempt_state.meet_on,
                ports=dict(gang.attempt_state.ports),
                cause=gang.cause,
            )
        )

    def checked(self, event: ev.ChecksFinished, now: float) -> None:
        """Handle the result of the checks: prepare the workers, use other nodes, or end the job."""
        gang, attempt_state = self._gang, self._gang.attempt_state
        if (event.attempt, event.round) != (gang.attempt, attempt_state.round) or gang.phase is not Phase.CHECKING:
            return
        passed = event.state is not CheckState.FAIL
        attempt_state.take_checks(event.taken, event.meeting if passed else attempt_state.meeting)
        for warning in event.warnings:
            gang.say(warning)
        if passed:
            self._prepare(event, now)
            return
        attempt_state.fail_check(event.failure)
        what = event.failure.message if event.failure else "a check failed"
        if event.failure is not None and event.failure.phrase and not event.failure.elsewhere:
            self._fail_unstarted(f"{event.failure.check}: {what}", now)
            return
        if event.avoid and not event.fatal:
            gang.leave_out(event.avoid, what)
            if self.look_elsewhere(what, now):
                return
        self._ending.finish_unstarted(
            PhaseTrigger.NONE_HEALTHY,
            now,
            DecisionKind.FAIL,
            f"not started: {what}",
            elsewhere=bool(event.avoid) and not event.fatal,
        )

    def _fail_unstarted(self, reason: str, now: float) -> None:
        """End the attempt because no node could fetch a prerequisite.

        No worker has run and all evidence is known, so explain the end and decide at once.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        gang.caused_by_this()
        attempt_state.fail_in(gang.phase.value, reason)
        gang.move(PhaseTrigger.TROUBLE, now, reason)
        attempt_state.collect(now)
        self._draining.understand(attempt_state.evidence(gang.phase, gang.job_id), now)

    def look_elsewhere(self, what: str, now: float) -> bool:
        """Repeat the checks on the remaining nodes, or wait for other nodes. Return False if neither is possible.
        `what`: the reason, for the history of phases.
        """
        gang = self._gang
        if gang.places() is not None and not self.assembly.refills():
            gang.move(PhaseTrigger.CHECK_ELSEWHERE, now, what)
            self._ask_again(now)
        elif gang.many and self.assembly.may_wait():
            self.assembly.wait(now)
        else:
            return False
        return True

    def _ask_again(self, now: float) -> None:
        """Repeat the checks without the failed node or device.

        Its failure is then no longer the cause of the attempt's end.
        """
        self._gang.attempt_state.next_round()
        self.ask_checks(now)

    # ---------------------------------------------------- placing the ranks and preparing the workers

    def _prepare(self, event: ev.ChecksFinished, now: float) -> None:
        gang, attempt_state = self._gang, self._gang.attempt_state
        gang.end_resets()
        placements = gang.places(among=attempt_state.asked)
        changed = gang.many and (placements is None or placements[0].node != attempt_state.meet_on)
        if changed and self.look_elsewhere("the nodes have changed", now):
            return  # the checks run again: rank 0 moved to another node, which must reserve the rendezvous port
        if placements is None:
            # The reset of a device has failed, and too few healthy nodes or devices are left. The cause of the last
            # attempt remains the job's cause.
            check = self._ending.too_few()
            attempt_state.fail_check(check)
            last = gang.records[-1].report if gang.records else None
            self._ending.finish_unstarted(
                PhaseTrigger.NONE_HEALTHY, now, DecisionKind.FAIL, f"not started: {check.message}", last, elsewhere=True
            )
            return
        if why := self._gather(placements, event.ports):
            if attempt_state.check is None and self.look_elsewhere(why, now):
                return
            self._ending.finish_unstarted(PhaseTrigger.NONE_HEALTHY, now, DecisionKind.FAIL, f"not started: {why}")
            return
        gang.place_ranks(placements)
        placed = f"{counted(len(placements), 'worker')} on {counted(len(attempt_state.roster.nodes), 'node')}"
        gang.move(PhaseTrigger.CHECKS_PASSED, now, placed)
        gang.arm(TimerKind.DEADLINE, now + gang.spec.timers.prepare_s + hooks_before_s(gang.spec.runtime))
        self._orders.send(now)

    def _gather(self, placements: tuple[Placement, ...], reserved: Mapping[str, tuple[int, ...]]) -> str:
        """Store the addresses of the attempt's tasks for the workers. Return why that failed; empty if it worked.

        If nodes must reserve other ports, the checks run again. If a node has reserved too few ports, record a failed
        check. `placements`: the placement of each rank. `reserved`: node → its ports.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        if not gang.spec.tells_peers:
            return ""
        attempt_state.reach_peers(gather(gang.spec, placements, gang.addresses() if gang.many else {}, reserved))
        if attempt_state.peers is not None:
            return ""
        needed = ports_needed(gang.spec, placements)
        short = [node for node, count in needed.items() if len(reserved.get(node, ())) < count]
        if any(attempt_state.ports.get(node, 0) < needed[node] for node in short):
            return "the nodes have changed: others have to reserve ports"
        message = f"{short[0]} has reserved {len(reserved.get(short[0], ()))} of {needed[short[0]]} ports"
        attempt_state.fail_check(CheckFailure(check="ports", message=message, nodes=(short[0],), blame="platform"))
        return message
