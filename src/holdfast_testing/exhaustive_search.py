"""Searches all orders of messages at small size: the real Gang, two real Agents, and a network that may do anything.

Random runs seldom meet the worst order of messages. The search tries all of them, breadth first, so that a violation is
found by a shortest path. A sent message may be delivered at any time, any number of times, or never. Time is abstract:
a lease may run out at any moment, and the owner may fence a node only after every lease it ever granted to it has run
out (in reality it waits for lease, drift and one heartbeat).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.decide.owner import Owner
from holdfast.decide.phases import LIVE, Phase
from holdfast.model import events as ev
from holdfast.model.actions import Action, CollectEvidence, RunChecks, Secure, Send
from holdfast.model.check_results import CheckState
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import Ack, Command, Report
from holdfast.model.job_spec import NodeInfo
from holdfast.model.process_messages import (
    AllReaped,
    Fact,
    Instruction,
    ReleaseWorker,
    SendReport,
    SignalWorkers,
    StartWorker,
    WorkerExited,
    WorkerPrepared,
    WorkerUp,
)
from holdfast_testing.search_state import (
    EVER,
    GENERATION_S,
    LEASE_S,
    NEXT,
    NODES,
    PROMPT,
    SPEC,
    Bounds,
    Side,
    State,
    clone,
)
from holdfast_testing.simulated_world import Violation
from holdfast_testing.simulation import Parts


@dataclass
class Found:
    """The result of a search: the number of states seen, and the shortest path to a violation if there is one."""

    states: int
    complete: bool
    violation: Violation | None = None
    steps: tuple[str, ...] = ()


class Search:
    """A breadth-first search over everything that may happen within the bounds on troubles."""

    def __init__(self, parts: Parts | None = None, bounds: Bounds | None = None) -> None:
        self._parts = parts or Parts()
        self._bounds = bounds or Bounds()
        self._numbers: dict[Any, int] = {}
        self._messages: list[tuple[str, int, Any]] = []

    def run(self, limit: int = 200_000) -> Found:
        """Search until all states are seen, `limit` states are seen, or an invariant breaks."""
        start = self._begin()
        queue: deque[tuple[State, tuple[Any, ...]]] = deque([(start, ())])
        seen = {start.key()}
        while queue:
            state, path = queue.popleft()
            for label, owner, side, act in self._moves(state):
                if self._bounds.prompt:
                    after = State(clone(state.owner, {}), clone(state.sides, {}), state.told, state.left)
                else:
                    after = state.touch(owner=owner, side=side)
                try:
                    act(after)
                    self._at_once(after)
                    self._judge(after)
                except Violation as violation:
                    return Found(len(seen), False, violation, (*_unroll(path), label))
                key = after.key()
                if key not in seen:
                    seen.add(key)
                    if len(seen) >= limit:
                        return Found(len(seen), False)
                    queue.append((after, (path, label)))
        return Found(len(seen), True)

    def _begin(self) -> State:
        sides = tuple(Side(self._parts.agent(node, 1, lease_s=LEASE_S, beat_s=EVER)) for node in NODES)
        state = State(Owner(self._parts.gang()), sides, frozenset(), self._bounds)
        nodes = tuple(NodeInfo(name=node, slots=1) for node in NODES)
        self._owner(state, ev.JobSubmitted(job_id="search", spec=SPEC, nodes=nodes))
        for index, side in enumerate(sides):
            self._agent(state, index, side.agent.tick(side.now))
        self._at_once(state)
        return state

    def _at_once(self, state: State) -> None:
        """Deliver the messages of the prompt node, which must not wait, and advance its processes."""
        while state.at_once:
            kind, index, body = state.at_once.pop(0)
            if kind == "report":
                self._hear(state, index, body)
            else:
                self._obey(state, index, body)
            for rank, (_, at) in list(state.sides[index].processes.items()):
                if at in NEXT:
                    self._become(state, index, rank)

    # ------------------------------------------------------------------------------------------ what may happen

    def _moves(self, state: State) -> Iterator[tuple[str, bool, int | None, Callable[[State], None]]]:
        """Yield each possible next step: a description, whether it changes the owner, the node that it changes, and the
        function that performs it."""
        gang, left = state.gang, state.left
        for number in sorted(state.told):
            kind, index, body = self._messages[number]
            if kind == "report":
                yield f"the owner hears {_words(body)}", True, index, partial(self._hear, index=index, report=body)
            else:
                yield (
                    f"{NODES[index]} gets {_words(body)}",
                    False,
                    index,
                    partial(self._obey, index=index, command=body),
                )
        for index, side in enumerate(state.sides):
            node = NODES[index]
            for rank, (_, at) in side.processes.items():
                if at in NEXT:
                    yield f"rank {rank} is {NEXT[at]}", False, index, partial(self._become, index=index, rank=rank)
                if left.crashes:
                    yield f"rank {rank} crashes", False, index, partial(self._crash, index=index, rank=rank)
            if self._bounds.prompt and index == PROMPT:
                continue  # Both nodes are alike, so troubles of one node suffice.
            if left.expiries and side.agent.lease.until > side.now:
                yield f"the lease of {node} runs out", False, index, partial(self._expire, index=index)
            if left.agent_restarts:
                yield f"the agent of {node} starts anew", False, index, partial(self._restart, index=index)
            if gang.phase is Phase.DRAINING and side.heard < side.generation and node not in gang.attempt_state.fenced:
                yield f"the owner fences {node}", True, None, partial(self._fence, node=node)
            if left.suspicions and gang.phase in LIVE:
                yield f"{node} seems silent", True, None, partial(self._suspect, node=node)
        if gang.phase is Phase.BACKOFF and gang.attempt < self._bounds.attempts:
            yield "the next attempt is due", True, None, partial(self._owner, event=ev.Tick())
        if left.owner_crashes and gang.phase not in (Phase.BACKOFF, Phase.DONE):
            yield "the owner crashes and is back", True, None, self._owner_crash

    def _judge(self, state: State) -> None:
        live = {attempt for side in state.sides for attempt, _ in side.processes.values()}
        phase, attempt = state.gang.phase, state.gang.attempt
        if len(live) > 1:
            raise Violation("I1", f"processes of attempts {sorted(live)} live at once")
        if live and phase in (Phase.BACKOFF, Phase.CHECKING, Phase.DONE):
            raise Violation("I1", f"the owner is in {phase} while attempt {min(live)} lives")
        if live and max(live) < attempt and phase is not Phase.DRAINING:
            raise Violation("I1", f"attempt {attempt} has begun while attempt {min(live)} lives")

    # ------------------------------------------------------------------------------------------ owner and network

    def _tell(self, state: State, kind: str, index: int, identity: Any, body: Any) -> None:
        if self._bounds.prompt and index == PROMPT:
            state.at_once.append((kind, index, body))
            return
        key = (kind, index, identity)
        if key not in self._numbers:
            self._numbers[key] = len(self._messages)
            self._messages.append((kind, index, body))
        state.told |= {self._numbers[key]}

    def _owner(self, state: State, event: ev.Event) -> None:
        """Let the owner handle one event, and perform all its actions that need no other part: checks pass, and
        evidence is collected."""
        gang = state.gang
        queue: deque[Action] = deque(gang.handle(event, 0.0))
        while True:
            while queue:
                action = queue.popleft()
                match action:
                    case Send():
                        self._tell(state, "command", NODES.index(action.node), _name(action.command), action.command)
                    case RunChecks():
                        passed = ev.ChecksFinished(attempt=action.attempt, round=action.round, state=CheckState.PASS)
                        queue.extend(gang.handle(passed, 0.0))
                    case Secure():
                        queue.extend(gang.handle(ev.JournalSecured(attempt=action.attempt), 0.0))
                    case CollectEvidence():
                        collected = ev.EvidenceCollected(attempt=action.attempt, evidence=action.evidence)
                        queue.extend(gang.handle(collected, 0.0))
                    case _:
                        pass  # Messages to people and records of attempts change no state.
            wake = gang.next_wake()
            if gang.phase is not Phase.DRAINING or wake is None or wake > SPEC.timers.settle_s:
                return
            queue.extend(gang.handle(ev.Tick(), SPEC.timers.settle_s))

    def _hear(self, state: State, index: int, report: Report) -> None:
        side = state.sides[index]
        side.heard = max(side.heard, int(report.sent / GENERATION_S))
        boot = state.gang.agents.boots.get(report.node, 0)
        # The delay of a message does not matter: an agent's clock only gives the order of its reports.
        event = state.owner.hear(report, report.sent)
        state.told -= self._overtaken(state, index, report)
        if event is not None:
            self._owner(state, event)
        if report.boot >= boot:
            ack = self._parts.acknowledge(state.gang, report)
            self._tell(state, "command", index, ("ack", report.boot, int(report.sent / GENERATION_S), ack.floor), ack)

    def _overtaken(self, state: State, index: int, report: Report) -> set[int]:
        """Return the older reports of this node that need no delivery any more.

        The newer report, which may be delivered again, leads to every state that they could lead to.
        """
        heard = (report.boot, report.sent)
        return {
            number
            for number in state.told
            if self._messages[number][:2] == ("report", index)
            and (self._messages[number][2].boot, self._messages[number][2].sent) < heard
        }

    def _fence(self, state: State, node: str) -> None:
        self._owner(state, ev.NodeFenced(node=node, boot=state.gang.agents.boots.get(node, 1)))

    def _suspect(self, state: State, node: str) -> None:
        state.left = replace(state.left, suspicions=state.left.suspicions - 1)
        self._owner(state, ev.NodeSilent(node=node, boot=state.gang.agents.boots.get(node, 1), silent_s=LEASE_S))

    def _owner_crash(self, state: State) -> None:
        state.left = replace(state.left, owner_crashes=state.left.owner_crashes - 1)
        self._owner(state, ev.OwnerRecovered())

    # ------------------------------------------------------------------------------------------ agents and processes

    def _obey(self, state: State, index: int, command: Command) -> None:
        side = state.sides[index]
        self._agent(state, index, side.agent.obey(command, side.now))

    def _agent(self, state: State, index: int, instructions: list[Instruction]) -> None:
        """Carry out the agent's instructions; signalled processes die at once."""
        side = state.sides[index]
        queue = deque(instructions)
        while True:
            while queue:
                order = queue.popleft()
                match order:
                    case StartWorker():
                        if order.placement.rank in side.processes:
                            raise Violation("I1", f"two processes of rank {order.placement.rank}")
                        side.processes[order.placement.rank] = (order.attempt, "booting")
                    case ReleaseWorker():
                        attempt, _ = side.processes[order.rank]
                        side.processes[order.rank] = (attempt, "going")
                    case SignalWorkers():
                        queue.extend(self._signal(side, order))
                    case SendReport():
                        self._say(state, index, order.report)
            due = side.agent.next_wake()
            if due is None or due > side.now:
                return
            queue.extend(side.agent.tick(side.now))

    def _signal(self, side: Side, order: SignalWorkers) -> list[Instruction]:
        out: list[Instruction] = []
        for rank, (attempt, _) in list(side.processes.items()):
            if attempt == order.attempt:
                del side.processes[rank]
                out += side.agent.learn(WorkerExited(exit=_exit(side, rank, attempt, signal=15)), side.now)
        return out + side.agent.learn(AllReaped(attempt=order.attempt), side.now)

    def _say(self, state: State, index: int, report: Report) -> None:
        """Send the agent's report, unless the agent has sent the same content in the same generation."""
        side = state.sides[index]
        states = tuple((member.rank, member.state) for member in report.members)
        content = (report.boot, side.generation, report.attempt, report.stopped, states)
        if content != side.last:
            side.last = content
            self._tell(state, "report", index, (side.said, content), report)
            side.said += 1

    def _become(self, state: State, index: int, rank: int) -> None:
        """Advance a process to its next state."""
        side = state.sides[index]
        attempt, at = side.processes[rank]
        side.processes[rank] = (attempt, NEXT[at])
        fact: Fact = WorkerUp(attempt=attempt, rank=rank)
        if at == "booting":
            fact = WorkerPrepared(attempt=attempt, rank=rank, pid=1)
        self._agent(state, index, side.agent.learn(fact, side.now))

    def _crash(self, state: State, index: int, rank: int) -> None:
        state.left = replace(state.left, crashes=state.left.crashes - 1)
        side = state.sides[index]
        attempt, _ = side.processes.pop(rank)
        fact = WorkerExited(exit=_exit(side, rank, attempt, signal=11))
        self._agent(state, index, side.agent.learn(fact, side.now))

    def _expire(self, state: State, index: int) -> None:
        state.left = replace(state.left, expiries=state.left.expiries - 1)
        side = state.sides[index]
        side.generation += 1
        self._agent(state, index, side.agent.tick(side.now))
        # The agent's next heartbeat is due in any case. The network decides whether it arrives.
        side.agent.next_beat = side.now
        self._agent(state, index, [])

    def _restart(self, state: State, index: int) -> None:
        state.left = replace(state.left, agent_restarts=state.left.agent_restarts - 1)
        side = state.sides[index]
        side.processes.clear()
        side.agent = self._parts.agent(NODES[index], side.agent.boot + 1, lease_s=LEASE_S, beat_s=EVER)
        self._agent(state, index, side.agent.tick(side.now))


def _exit(side: Side, rank: int, attempt: int, signal: int) -> WorkerExit:
    return WorkerExit(
        role="worker", rank=rank, node=NODES[rank], attempt=attempt, pid=1, signal=signal, ended_at=side.now
    )


def _name(command: Command) -> Any:
    return type(command).__name__, getattr(command, "attempt", 0), command.term


def _words(body: Command | Report) -> str:
    if isinstance(body, Report):
        states = ", ".join(str(member.state) for member in body.members) or "none"
        return f"from {body.node}: {states} (attempt {body.attempt}, stopped {body.stopped}, boot {body.boot})"
    if isinstance(body, Ack):
        return f"an acknowledgement (sent {body.sent:g}, floor {body.floor})"
    return f"{type(body).__name__.upper()}({body.attempt})"


def _unroll(path: tuple[Any, ...]) -> list[str]:
    steps: list[str] = []
    while path:
        path, label = path
        steps.append(label)
    return steps[::-1]
