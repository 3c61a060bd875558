"""Handles nodes that join, leave, fall silent or come back, and restarts of the owner. Only jobs of several nodes use
it.
"""

from __future__ import annotations

from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_ending import AttemptRecorder
from holdfast.decide.attempt_failures import AttemptFailures
from holdfast.decide.attempt_start import AttemptStart
from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.draining import Draining
from holdfast.decide.job_state import GangState
from holdfast.decide.node_assembly import Assembly
from holdfast.decide.node_commands import Orders
from holdfast.decide.phases import LIVE, Phase, PhaseTrigger
from holdfast.model import events as ev
from holdfast.model.actions import FinishJob
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import LeftBehind, MemoryKill


class Nodes:
    """Handles changes of the set of present nodes: begins an attempt, continues it, or waits for nodes."""

    def __init__(
        self,
        gang: GangState,
        agents: AgentRegistry,
        orders: Orders,
        beginning: AttemptStart,
        ending: AttemptRecorder,
        draining: Draining,
        troubles: AttemptFailures,
    ) -> None:
        self._gang = gang
        self._agents = agents
        self._orders = orders
        self._beginning = beginning
        self._ending = ending
        self._draining = draining
        self._troubles = troubles

    @property
    def _assembly(self) -> Assembly:
        return self._beginning.assembly

    def joined(self, event: ev.NodeJoined, now: float) -> None:
        """Handle the arrival of a node whose agent was admitted."""
        gang, boot = self._gang, self._agents.boots.get(event.node.name, 0)
        if not gang.submitted or gang.phase is Phase.DONE or event.boot < boot:
            return
        if self._agents.is_dead(event.node.name, event.boot):
            return
        if not self._assembly.joined(event) and boot == event.boot:
            return  # do nothing: the agent has only reconnected, and its node has not changed
        if (
            gang.phase is Phase.DRAINING
            and gang.attempt_state.forgotten
            and event.node.name not in gang.attempt_state.nodes
        ):
            gang.attempt_state.drain_again((*gang.attempt_state.nodes, event.node.name))
            self._draining.begin_again(now)
        if self._agents.speaks_anew(event.node.name, event.boot):
            self.agent_is_back(event.node.name, now, event.memory_kill)
        self.look(now, came=True)

    def left(self, event: ev.NodeLeft, now: float) -> None:
        """Handle a node that has left for good."""
        gang = self._gang
        if gang.phase is Phase.DONE or event.boot < self._agents.boots.get(event.node, 0):
            return
        if self._agents.is_dead(event.node, event.boot):
            return
        self._assembly.missed(event.node, event.reason)
        gang.leave(event.node)
        self._troubles.left(event, now)
        if event.fenced:
            # The agent that left cannot report the end of its workers.
            self._agents.busy.pop(event.node, None)
            self._draining.fence(event.node, now)
        self.look(now)

    def room_changed(self, event: ev.RoomChanged, now: float) -> None:
        """Stop waiting for further nodes if the platform has no room for any of them."""
        gang = self._gang
        if not gang.submitted or gang.phase is Phase.DONE:
            return
        gang.change_room(event.place, event.words)
        if gang.phase is Phase.ASSEMBLING and self._assembly.enough():
            here, most = self._assembly.count(), gang.spec.nodes.most
            gang.say(
                f"the platform has no further node now; the job goes on with {here} of {most} nodes",
                cause=gang.this_event(),
            )
            self.look(now)

    def silent(self, event: ev.NodeSilent, now: float) -> None:
        """Handle a node whose agent has been silent for a whole lease."""
        gang = self._gang
        if gang.many:
            self._assembly.missed(event.node, f"no word from it for {event.silent_s:.0f} s")
        self._troubles.silent(event, now)
        if gang.many:
            self.look(now)

    def heard(self, node: str, now: float) -> None:
        """Handle an agent's report. If its node counted as lost, the node is back."""
        if self._assembly.heard(node):
            self.look(now, came=True)

    def look(self, now: float, *, came: bool = False) -> None:
        """Begin an attempt, or wait, after the set of present nodes has changed. `came`: whether a node has joined or
        come back.
        """
        gang = self._gang
        if gang.phase is Phase.ASSEMBLING:
            gang.caused_by_this()
            if self._assembly.enough():
                self._beginning.assembled(now)
            elif came or not self._assembly.at_least():
                self._assembly.call(now)
        elif gang.phase is Phase.CHECKING and gang.absent.keys() & gang.attempt_state.asked:
            gang.caused_by_this()
            self._beginning.look_elsewhere("a node is gone", now)
        elif came:
            self.grow(now)

    def grow(self, now: float) -> None:
        """Stop the running attempt for a larger one, if the job uses new nodes at once."""
        if request := self._assembly.growth(now):
            self._draining.stop_for(request.reason, now, request)

    def last_called(self, now: float) -> None:
        """Begin an attempt with the present nodes, because the short wait for further nodes is over."""
        if self._assembly.at_least():
            self._beginning.assembled(now)

    def unassembled(self, now: float) -> None:
        """Begin an attempt with fewer nodes, or end the job, because the time limit for nodes to join is over."""
        gang = self._gang
        if self._assembly.may_begin_smaller():
            self._beginning.assembled(now)
        elif gang.attempt == 0:
            self._ending.finish_unassembled(self._assembly.muster(now), now)
        else:
            plan = gang.spec.nodes
            wait_s = plan.join_s if gang.attempt == gang.began_after else plan.replace_s
            why = f"{self._assembly.short()}, and no other came within {wait_s:g} s"
            if gang.pending:
                self._ending.finish_unstarted(
                    PhaseTrigger.NONE_HEALTHY, now, DecisionKind.FAIL, f"not started: {why}", elsewhere=True
                )
            else:
                self._ending.finish_without_places(now, why)

    # --------------------------------------------------------------- restarts of agents and of the owner

    def agent_is_back(self, node: str, now: float, memory_kill: MemoryKill | None = None) -> bool:
        """Handle a new agent of a node. The guard of the earlier agent has killed all its processes.

        Return True if this ends the attempt. If the node had not begun to prepare the attempt, the attempt goes on: the
        owner repeats PREPARE, and only older attempts count as ended on the node.
        """
        gang = self._gang
        untouched = gang.phase is Phase.PREPARING and all(k.state is None for k in gang.attempt_state.roster.on(node))
        over = gang.attempt - 1 if untouched or gang.phase is Phase.CHECKING else gang.attempt
        lost = LeftBehind(node=node, silent_s=0.0, back=True, memory_kill=memory_kill)
        self._draining.lose(lost)
        self._agents.began_anew(node, over)
        if gang.phase not in LIVE or untouched or node not in gang.attempt_state.roster:
            return False
        self._troubles.lose(lost, f"the agent of {node} started anew", now)
        return True

    def owner_is_back(self, now: float) -> None:
        """Repeat the pending commands after the owner has replayed the journal.

        The state of a worker counts as unknown until its agent reports.
        """
        gang = self._gang
        gang.raise_term()
        gang.forget_room()
        self._agents.forget((node.name for node in gang.nodes), now + gang.lease_s())
        if gang.phase is Phase.PREPARING:
            # The owner may have sent PREPARE before its restart. A second PREPARE has no effect, because the placement
            # is the same.
            gang.attempt_state.mark_sent()
        if gang.phase is Phase.ASSEMBLING:
            # No agent could connect while the owner was down, so postpone these timers.
            for timer in (TimerKind.DEADLINE, TimerKind.LAST_CALL):
                gang.timers.postpone(timer, now + gang.lease_s())
        if gang.phase is Phase.CHECKING:
            gang.attempt_state.repeat_round()
            self._beginning.ask_checks(now)
        elif gang.phase in LIVE:
            gang.attempt_state.forget_agents()
            gang.arm(TimerKind.CONFIRM, now + gang.lease_s())
            self._orders.send(now)
        elif gang.phase is Phase.DRAINING:
            self._draining.recovered(now)
        elif gang.phase is Phase.QUEUED and gang.asked is not None:
            self._ending.ask_again(gang.asked.reason)
        elif gang.report is not None:
            gang.emit(FinishJob(report=gang.report, cause=gang.cause))

    def confirm(self, now: float) -> None:
        """Stop the attempt if an agent has sent no report in time since the owner's restart."""
        gang = self._gang
        if quiet := gang.attempt_state.quiet(preparing=gang.phase is Phase.PREPARING):
            names = ", ".join(quiet)
            lost = LeftBehind(node=quiet[0], silent_s=gang.lease_s())
            self._troubles.lose(lost, f"{names} did not answer after the owner came back", now)
