"""An owner and its nodes on a table: the real owner, the real agents, real frames between them, real readings of logs.

Each node has a clock of its own. What passes between owner and node takes a while, and goes through the wire's codec.
"""

from __future__ import annotations

import heapq
import itertools
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.decide.queries.answer_collection import AnswerCollection, parts
from holdfast.explain import read_workers
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, FinishJob, RecordAttempt, RunChecks, Secure, Send
from holdfast.model.check_results import CheckState
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, MemoryKill
from holdfast.model.exit_report import ExitReport, WorkerExit
from holdfast.model.gang_protocol import Command, Meeting, Report
from holdfast.model.job_spec import JobSpec, NodeInfo, NodePlan, RestartPolicy, Role, Timers
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
from holdfast.wire.message_frames import FrameReader, FromAgent, FromOwner, frame

FAR_T = 1_790_000_000.0
SLOTS_EACH = 2


class FarNode:
    """A machine: its agent, its workers, its clock, its kernel's order of deaths."""

    def __init__(self, name: str, ahead: float, timers: Timers, order: int) -> None:
        self.name = name
        self.ahead = ahead
        self.agent = Agent(name, 1, lease_s=timers.lease_s, beat_s=timers.beat_s)
        self.hears, self.speaks = FrameReader(FromOwner), FrameReader(FromAgent)
        #: Rank → its pid and when it began, on this node's clock.
        self.living: dict[int, tuple[int, float]] = {}
        self.order = order
        self.logs: dict[int, str] = {}
        self.kills: list[MemoryKill] = []
        #: Its words come so much later than others'.
        self.lag_s = 0.0


class FarGang:
    """Plays time. `ahead`: seconds by which each node's clock is ahead of the owner's."""

    def __init__(self, *ahead: float) -> None:
        self.now = FAR_T
        #: One way, between owner and node.
        self.delay_s = 0.004
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        timers = Timers(lease_s=6.0, beat_s=1.0, grace_s=5.0)
        self.nodes = {
            f"gpu-{index + 1}": FarNode(f"gpu-{index + 1}", by, timers, order=17 * (3 - index))
            for index, by in enumerate(ahead)
        }
        count = len(self.nodes)
        spec = JobSpec(
            name="far",
            roles=(Role(name="worker", count=SLOTS_EACH, command=("x",), per_node=True),),
            nodes=NodePlan(least=count, most=count),
            timers=timers,
            checks=(),
            restarts=RestartPolicy(max_restarts=0),
        )
        self.owner = Owner(Gang(), Liveness(timers))
        self.roundup = AnswerCollection()
        self.reports: list[ExitReport] = []
        self.finished = False
        self.take(ev.JobSubmitted(job_id="j", spec=spec, nodes=(), seed=1))
        for index, name in enumerate(self.nodes):
            self.take(ev.NodeJoined(node=NodeInfo(name=name, slots=SLOTS_EACH, address=f"10.1.2.{index + 1}"), boot=1))
        self.until(lambda: self.owner.gang.phase is Phase.RUNNING)
        self.run(30.0)

    # ------------------------------------------------------------------------------------------ time

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self._count), act))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._step(end):
            pass
        self.now = end

    def until(self, done: Callable[[], bool], within_s: float = 100.0) -> None:
        end = self.now + within_s
        while not done():
            assert self._step(end), f"it is {self.owner.gang.phase}"

    def _step(self, end: float) -> bool:
        """The next thing that is due, if it is before `end`."""
        wakes = [wake for wake in (self.owner.next_wake(), self.roundup.next_wake()) if wake is not None]
        agents = [(wake - n.ahead, n) for n in self.nodes.values() if (wake := n.agent.next_wake()) is not None]
        queued = [self._queue[0][0]] if self._queue else []
        nearest = min([*wakes, *(wake for wake, _ in agents), *queued], default=end)
        if self.finished or nearest > end:
            return False
        self.now = max(self.now, nearest + 1e-6)
        if self._queue and self._queue[0][0] <= self.now:
            heapq.heappop(self._queue)[2]()
        for wake, node in agents:
            if wake <= self.now:
                self._perform(node, node.agent.tick(self.now + node.ahead))
        for event in (*self.roundup.due(self.now), *self.owner.due(self.now)):
            self.take(event)
        return True

    # ------------------------------------------------------------------------------------------ the owner

    def take(self, event: ev.Event) -> None:
        for action in self.owner.gang.handle(event, self.now):
            match action:
                case Send():
                    self._send(self.nodes[action.node], action.command)
                case Secure():
                    self.take(ev.JournalSecured(attempt=action.attempt))
                case RunChecks():
                    meeting = Meeting(address="10.1.2.1", port=29500)
                    answer = ev.ChecksFinished(
                        attempt=action.attempt, round=action.round, state=CheckState.DISABLED, meeting=meeting
                    )
                    self.after(0.0, partial(self.take, answer))
                case CollectEvidence():
                    self.roundup.ask(action, self.now)
                    for name, part in parts(action):
                        self._ask(self.nodes[name], part)
                case RecordAttempt():
                    self.reports.append(action.record.report)
                case FinishJob():
                    self.finished = True
                case _:
                    pass

    def _send(self, node: FarNode, command: Command) -> None:
        data = frame(command, self.now)

        def arrive() -> None:
            for message in node.hears.take(data, self.now + node.ahead):
                self._perform(node, node.agent.obey(message, self.now + node.ahead))

        self.after(self.delay_s, arrive)

    def _heard(self, node: FarNode, word: Report | ev.Event) -> None:
        data = frame(word, self.now + node.ahead)

        def arrive() -> None:
            for message in node.speaks.take(data, self.now):
                if isinstance(message, Report):
                    if (heard := self.owner.hear(message, self.now)) is not None:
                        self.take(heard)
                    for action in self.owner.answer(message):
                        assert isinstance(action, Send)
                        self._send(self.nodes[action.node], action.command)
                elif (whole := self.roundup.hear(node.name, message, self.now)) is not None:
                    self.take(whole)

        self.after(self.delay_s + node.lag_s, arrive)

    # ------------------------------------------------------------------------------------------ the nodes

    def _perform(self, node: FarNode, instructions: list[Instruction]) -> None:
        here = self.now + node.ahead
        for instruction in instructions:
            match instruction:
                case SendReport():
                    self._heard(node, instruction.report)
                case StartWorker():
                    rank, attempt = instruction.placement.rank, instruction.attempt
                    # Pids of two nodes are equal.
                    node.living[rank] = (100 + instruction.placement.local_rank, here)
                    self._learn(node, WorkerPrepared(attempt=attempt, rank=rank, pid=node.living[rank][0]))
                case ReleaseWorker():
                    self._learn(node, WorkerUp(attempt=instruction.attempt, rank=instruction.rank))
                case SignalWorkers():
                    for rank in tuple(node.living):
                        self._end(node, rank, signal=int(signal.SIGKILL if instruction.hard else signal.SIGTERM))
                    self._learn(node, AllReaped(attempt=instruction.attempt))
                case _:
                    raise AssertionError(instruction)

    def _learn(self, node: FarNode, fact: Fact) -> None:
        self._perform(node, node.agent.learn(fact, self.now + node.ahead))

    def node_of(self, rank: int) -> FarNode:
        return self.nodes[f"gpu-{rank // SLOTS_EACH + 1}"]

    def dies(self, rank: int, after_s: float, words: str = "", *, memory: bool = False, **how: Any) -> None:
        """A worker ends by itself, so much later, with these words as the end of its stderr."""

        def die() -> None:
            node = self.node_of(rank)
            if rank not in node.living:
                return  # it was stopped before
            node.logs[rank] = words
            if memory:
                at, pid = self.now + node.ahead, node.living[rank][0]
                node.kills.append(
                    MemoryKill(source="kernel log", text=f"Killed process {pid}", node=node.name, pid=pid, at=at)
                )
            self._end(node, rank, last_words=words[-2048:], last_words_stream="stderr", **how)

        self.after(after_s, die)

    def _end(self, node: FarNode, rank: int, **how: Any) -> None:
        pid, began = node.living.pop(rank)
        node.order += 1
        ended = WorkerExit(
            role="worker",
            rank=rank,
            node=node.name,
            attempt=self.owner.gang.attempt,
            pid=pid,
            started_at=began,
            ended_at=self.now + node.ahead,
            order=node.order,
            **how,
        )
        self._learn(node, WorkerExited(exit=ended))

    def _ask(self, node: FarNode, part: CollectEvidence) -> None:
        data = frame(part, self.now)

        def arrive() -> None:
            for asked in node.hears.take(data, self.now + node.ahead):
                evidence = read_workers(self._seen(node, asked.evidence))
                self._heard(node, ev.EvidenceCollected(attempt=asked.attempt, evidence=evidence))

        self.after(self.delay_s, arrive)

    def _seen(self, node: FarNode, known: AttemptEvidence) -> AttemptEvidence:
        logs = {
            rank: LogExcerpt(source=f"worker-{rank} stderr", text=words, written_at=self.now + node.ahead)
            for rank, words in node.logs.items()
        }
        workers = tuple(replace(worker, stderr=logs.get(worker.rank)) for worker in known.workers)
        return replace(known, workers=workers, memory_kills=tuple(node.kills))

    def explained(self) -> ExitReport:
        """What the attempt is found to have died of."""
        self.until(lambda: bool(self.reports))
        return self.reports[-1]
