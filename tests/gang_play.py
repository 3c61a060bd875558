"""A gang alone on a table: events go in by hand, and at the end everything that must hold of any gang is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from holdfast.decide.gang import Gang
from holdfast.decide.phases import TABLE, Phase, PhaseTrigger
from holdfast.model import events as ev
from holdfast.model.actions import Action, Avoid, CollectEvidence, FinishJob, RecordAttempt, RunChecks, Secure, Send
from holdfast.model.check_results import CheckState
from holdfast.model.codec import decode_event, encode
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import StopRequest
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import Command, Go, Member, MemberState, Prepare, Report
from holdfast.model.job_spec import JobSpec, NodeInfo, RestartPolicy, Role, Timers

NODES = ("a", "b")
#: The stories let one failure happen again and again.
POLICY = RestartPolicy(max_restarts=3, same_failure=0)
TIMERS = Timers(
    check_s=20.0, prepare_s=30.0, start_s=40.0, grace_s=5.0, kill_s=7.0, peer_wait_s=0.5, settle_s=1.5, resend_s=1.0
)


def spec(count: int = 2, **changes: Any) -> JobSpec:
    fields: dict[str, Any] = {
        "name": "job",
        "roles": (Role(name="worker", count=count, command=("x",)),),
        "restarts": POLICY,
        "timers": TIMERS,
        "checks": (),
    }
    return JobSpec(**(fields | changes))


def died(rank: int, **how: Any) -> WorkerExit:
    """Rank's end; by SIGSEGV unless said otherwise."""
    fields: dict[str, Any] = {"signal": 11} if not how.keys() & {"exit_code", "signal"} else {}
    fields |= {"role": "worker", "rank": rank, "node": "a", "attempt": 1, "pid": 100 + rank, "order": 1}
    return WorkerExit(**(fields | how))


class Recorded(Gang):
    """The real gang; its moves are written down."""

    moves: list[tuple[Phase, PhaseTrigger]]

    def __init__(self) -> None:
        super().__init__()
        self.moves = []

    def move(self, trigger: PhaseTrigger, now: float, why: str) -> None:
        self.moves.append((self.phase, trigger))
        super().move(trigger, now, why)


class Play:
    """Plays the loop, the agents and the clock. One rank a node, in the order of `nodes`."""

    def __init__(self) -> None:
        self.gang = Recorded()
        self.now = 100.0
        self.out: list[Action] = []
        self.history: list[tuple[float, ev.Event, list[Action]]] = []
        self.nodes: tuple[str, ...] = NODES
        self.sent: dict[str, float] = {}
        #: Of every agent.
        self.boot = 1

    def at(self, phase: Phase) -> bool:
        return self.gang.phase is phase

    def tell(self, event: ev.Event) -> list[Action]:
        self.out = self.gang.handle(event, self.now)
        self.history.append((self.now, event, self.out))
        assert self.gang.phase in (Phase.RUNNING, Phase.DONE) or self.gang.next_wake() is not None
        if any(isinstance(action, Secure) for action in self.out):
            before = self.out
            self.out = before + self.tell(ev.JournalSecured(attempt=self.gang.attempt))
        return self.out

    def submit(self, job: JobSpec | None = None, nodes: tuple[str, ...] = NODES) -> None:
        self.nodes = nodes
        infos = tuple(NodeInfo(name=name, slots=1) for name in nodes)
        self.tell(ev.JobSubmitted(job_id="j", spec=job or spec(), nodes=infos, seed=7))

    def check(self, state: CheckState = CheckState.PASS, **changes: Any) -> None:
        round_ = self.gang.attempt_state.round
        self.tell(ev.ChecksFinished(attempt=self.gang.attempt, round=round_, state=state, **changes))

    def report(self, node: str, state: MemberState = MemberState.NONE, **changes: Any) -> list[Action]:
        """One rank's state, as its node's agent reports it."""
        gang = self.gang
        self.now += 0.01
        member = {key: changes.pop(key) for key in ("exit", "start_failed", "age_s") if key in changes}
        ranks = [known.placement.rank for known in gang.attempt_state.roster.on(node)]
        members = tuple(Member(rank=rank, state=state, **member) for rank in ranks if state is not MemberState.NONE)
        fields: dict[str, Any] = {
            "boot": self.boot,
            "attempt": gang.attempt,
            "stopped": gang.attempt - 1,
            "sent": self.now,
            "members": members,
        }
        return self.tell(ev.AgentReported(report=Report(node=node, **(fields | changes))))

    def all(self, state: MemberState) -> None:
        for node in self.gang.attempt_state.roster.nodes:
            self.report(node, state)

    def to(self, phase: Phase) -> None:
        """Along the good way, from CHECKING."""
        if self.gang.phase is Phase.CHECKING and phase is not Phase.CHECKING:
            self.check()
        if self.gang.phase is Phase.PREPARING and phase in (Phase.STARTING, Phase.RUNNING):
            self.all(MemberState.PREPARED)
        if self.gang.phase is Phase.STARTING and phase is Phase.RUNNING:
            self.all(MemberState.UP)
        assert self.gang.phase is phase

    def stopped(self, *nodes: str) -> None:
        for node in nodes or self.gang.attempt_state.roster.nodes:
            self.report(node, stopped=self.gang.attempt)

    def drain(self) -> None:
        """Every node has stopped; the evidence is what the gang itself knows."""
        self.stopped()
        self.collect()

    def collect(self, explaining_s: float = 0.0, **known: Any) -> None:
        """The evidence that was asked for is there; `known`: fields that others than the gang know."""
        asked = [action for action in self.out if isinstance(action, CollectEvidence)]
        assert len(asked) == 1
        evidence = structs.replace(asked[0].evidence, **known)
        self.tell(ev.EvidenceCollected(attempt=asked[0].attempt, evidence=evidence, cause=asked[0].cause))
        assert self.at(Phase.DRAINING)
        assert self.gang.next_wake() == self.now, "what follows is decided at once"
        self.now += explaining_s
        self.tell(ev.Tick())

    def crash(self, rank: int = 1, age_s: float = 0.0, **how: Any) -> None:
        node = self.gang.attempt_state.roster.members[rank].placement.node
        ended = died(rank, node=node, attempt=self.gang.attempt, **how)
        self.report(node, MemberState.FAILED, exit=ended, age_s=age_s)

    def stop(self, **changes: Any) -> None:
        fields: dict[str, Any] = {"reason": "enough", "at": self.now}
        self.tell(ev.StopRequested(request=StopRequest(**(fields | changes))))

    def wait(self, seconds: float) -> list[Action]:
        """Time passes, and the gang is woken whenever it asked to be. What it did in that time, all together."""
        until, out = self.now + seconds, list[Action]()
        while (wake := self.gang.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            out += self.tell(ev.Tick())
        self.now = until
        self.out = out
        return out

    def commands(self, kind: type[Command]) -> list[str]:
        """The nodes that were sent such a command by the last event."""
        return [a.node for a in self.out if isinstance(a, Send) and isinstance(a.command, kind)]

    @property
    def records(self) -> list[AttemptRecord]:
        return [a.record for _, _, out in self.history for a in out if isinstance(a, RecordAttempt)]

    @property
    def final(self) -> JobReport | None:
        reports = [a.report for _, _, out in self.history for a in out if isinstance(a, FinishJob)]
        return reports[-1] if reports else None

    def verify(self) -> None:
        """The invariants that can be seen from the outside, after any play."""
        gang = self.gang
        assert all(move in TABLE for move in gang.moves)
        again = Recorded()
        for now, event, out in self.history:
            assert again.handle(decode_event(encode(event)), now) == out
        assert again.moves == gang.moves
        numbers = [record.attempt for record in self.records]
        assert numbers == sorted(set(numbers))
        if not any("has lost how that began" in record.report.reason for record in self.records):
            # Otherwise the numbers go on from the highest that an agent knows.
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) in (gang.attempt, gang.attempt - 1)
        assert all(record.decision.reason for record in self.records)
        avoided: set[str] = set()
        begun, released = 0, 0
        for _, _, out in self.history:
            for action in out:
                match action:
                    case RunChecks():
                        assert action.attempt >= begun
                        begun = action.attempt
                    case Avoid():
                        avoided.update(action.names)
                    case Send(command=Prepare() as prepare):
                        assert prepare.attempt == begun
                        assert not avoided & {
                            name for placement in prepare.placements for name in (placement.node, placement.device)
                        }
                    case Send(command=Go() as go):
                        assert go.attempt == begun
                        released = go.attempt
        outrun = {(Phase.BACKOFF, PhaseTrigger.TROUBLE), (Phase.ASSEMBLING, PhaseTrigger.TROUBLE)}
        forgotten = outrun & set(gang.moves)  # an attempt that an agent told of has no checks
        assert released <= begun == gang.attempt or forgotten
        if gang.phase is Phase.DONE:
            assert self.final is not None
            assert gang.next_wake() is None


@pytest.fixture
def play() -> Iterator[Play]:
    """At the end everything that must hold of any gang is looked at."""
    played = Play()
    yield played
    played.verify()
