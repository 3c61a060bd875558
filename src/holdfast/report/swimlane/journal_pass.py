"""Collects from a job's events the history of each rank, node and attempt. It reads the journal once."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.events import (
    AgentReported,
    CheckFailedRunning,
    ChecksFinished,
    ChecksMoved,
    Event,
    EvidenceCollected,
    FaultSeen,
    HangFound,
    JobResumed,
    JobSubmitted,
    NodeFenced,
    NodeLeft,
    NodeSilent,
    OwnerRecovered,
    StopRequested,
)
from holdfast.model.evidence import AttemptEvidence, CheckFailure, HangEvidence, MemoryKill, StopSource
from holdfast.model.exit_report import WorkerExit
from holdfast.model.faults import Assertion
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.report.swimlane.swimlane_model import Mark, MarkKind

_BEFORE_UP = frozenset({MemberState.NONE, MemberState.BOOTING, MemberState.PREPARED, MemberState.GOING})
_BY_PEOPLE = frozenset({StopSource.OPERATOR, StopSource.SIGNAL})


class RankHistory:
    """The history of one rank in one attempt."""

    __slots__ = ("begun", "ended", "node", "role", "start_failed", "state", "step", "told")

    def __init__(self, node: str) -> None:
        self.node, self.role = node, ""
        self.begun: float | None = None
        self.ended: float | None = None
        self.told: WorkerExit | None = None
        self.state = MemberState.NONE
        self.start_failed = ""
        self.step: int | None = None


class AttemptHistory:
    """The history of one attempt."""

    def __init__(self, number: int, at: float) -> None:
        self.number = number
        self.began = self.last = at
        self.ranks: dict[int, RankHistory] = {}
        #: Ranks whose program does not run yet. With this set, a report of one node needs no loop over ten thousand
        #: ranks.
        self.behind: set[int] = set()
        self.checked: float | None = None
        self.going: float | None = None
        self.up: float | None = None
        self.trouble: float | None = None
        self.hang: HangEvidence | None = None
        self.hang_at = at
        self.kills: tuple[MemoryKill, ...] = ()
        self.checkpoints = 0
        self.checks: list[tuple[float, CheckFailure]] = []


class SwimlaneFacts:
    """Everything that a swimlane shows. `node_marks` also has nodes on which no rank ran."""

    def __init__(self) -> None:
        self.attempts: dict[int, AttemptHistory] = {}
        self.marks: list[Mark] = []
        self.node_marks: dict[str, list[Mark]] = {}
        self.last = 0.0

    def attempt(self, number: int, at: float) -> AttemptHistory:
        found = self.attempts.get(number)
        if found is None:
            found = self.attempts[number] = AttemptHistory(number, at)
        return found

    @property
    def present(self) -> int:
        return max(self.attempts, default=0)


def swimlane_facts(events: Iterable[tuple[float, Event]], known: SwimlaneFacts | None = None) -> SwimlaneFacts:
    """Collect the facts of a swimlane. `events`: (seconds since the epoch, event), oldest first.

    `known`: the facts of the events before these, to which the new ones are added.
    """
    whole = SwimlaneFacts() if known is None else known
    for now, event in events:
        whole.last = max(whole.last, now)
        _take(whole, now, event)
    return whole


def _take(whole: SwimlaneFacts, now: float, event: Event) -> None:
    match event:
        case ChecksMoved():
            whole.attempt(event.attempt, now)
        case ChecksFinished():
            attempt = whole.attempt(event.attempt, now)
            attempt.checked = now
            if event.failure is not None:
                attempt.checks.append((now, event.failure))
        case CheckFailedRunning():
            whole.attempt(event.attempt, now).checks.append((now, event.failure))
        case AgentReported():
            _report(whole, now, event.report)
        case HangFound():
            attempt = whole.attempt(event.attempt, now)
            attempt.hang, attempt.hang_at = event.evidence, now
        case EvidenceCollected():
            _evidence(whole.attempt(event.attempt, now), event.evidence)
        case StopRequested():
            asked = event.request
            people = asked.source in _BY_PEOPLE
            who = f" by {asked.who}" if asked.who else ""
            text = f"stop asked{who} ({asked.source.value}): {asked.reason}"
            kind = MarkKind.OPERATOR if people else MarkKind.STOP_ASKED
            whole.marks.append(Mark(kind=kind, at=now, text=text, attempt=whole.present))
        case FaultSeen():
            fault = event.fault
            if fault.assertion is Assertion.RECOVER:
                return
            text = f"fault {fault.code} of {fault.device}: {fault.text or fault.code} ({event.remedy.name})"
            mark = Mark(kind=MarkKind.FAULT, at=fault.at, text=text, attempt=whole.present)
            whole.node_marks.setdefault(fault.node, []).append(mark)
        case NodeSilent():
            _lost(whole, now, event.node, f"{event.node} has been silent for {event.silent_s:.0f} s")
        case NodeLeft():
            _lost(whole, now, event.node, f"{event.node} has left: {event.reason}")
        case NodeFenced():
            _lost(whole, now, event.node, f"no process on {event.node} can live any more")
        case JobResumed():
            text = f"{event.platform} has started the job again: {event.reason}"
            whole.marks.append(Mark(kind=MarkKind.BACK, at=now, text=text, attempt=whole.present))
        case OwnerRecovered():
            text = "the owner of the job is back after a crash"
            whole.marks.append(Mark(kind=MarkKind.BACK, at=now, text=text, attempt=whole.present))
        case JobSubmitted():
            pass  # ignore this event: the events of the attempts have the nodes and ranks that took part
        case _:
            pass  # other events do not change the picture


def _lost(whole: SwimlaneFacts, now: float, node: str, text: str) -> None:
    whole.node_marks.setdefault(node, []).append(Mark(kind=MarkKind.LOST, at=now, text=text, attempt=whole.present))


def _report(whole: SwimlaneFacts, now: float, report: Report) -> None:
    if not report.members:
        return
    attempt = whole.attempt(report.attempt, now)
    attempt.last = now
    for member in report.members:
        rank = attempt.ranks.get(member.rank)
        if rank is None:
            rank = attempt.ranks[member.rank] = RankHistory(report.node)
        _member(attempt, rank, member, now)
        (attempt.behind.add if rank.state in _BEFORE_UP else attempt.behind.discard)(member.rank)
    if attempt.up is None and not attempt.behind:
        attempt.up = now


def _member(attempt: AttemptHistory, rank: RankHistory, member: Member, now: float) -> None:
    if rank.begun is None and member.state is not MemberState.NONE:
        rank.begun = now
    if attempt.going is None and member.state is MemberState.GOING:
        attempt.going = now
    rank.state = member.state
    rank.start_failed = member.start_failed or rank.start_failed
    if member.exit is not None:
        _exit(rank, member.exit)
        rank.ended = member.died_at if member.died_at is not None else rank.ended
    elif member.state in (MemberState.DONE, MemberState.FAILED, MemberState.STOPPED) and rank.ended is None:
        rank.ended = now - member.age_s
    if attempt.trouble is None and member.state in (MemberState.FAILED, MemberState.STOPPED):
        attempt.trouble = now


def _exit(rank: RankHistory, told: WorkerExit) -> None:
    rank.told, rank.role = told, told.role
    if told.started_at is not None:
        rank.begun = told.started_at
    if told.ended_at is not None:
        rank.ended = told.ended_at


def _evidence(attempt: AttemptHistory, evidence: AttemptEvidence) -> None:
    for worker in evidence.workers:
        rank = attempt.ranks.get(worker.rank)
        if rank is None:
            rank = attempt.ranks[worker.rank] = RankHistory(worker.node)
            attempt.behind.add(worker.rank)
        rank.role = worker.role
        rank.step = worker.last_step if worker.last_step is not None else rank.step
        rank.start_failed = worker.start_failed or rank.start_failed
        if worker.exit is not None:
            _exit(rank, worker.exit)
    attempt.kills = evidence.memory_kills
    attempt.checkpoints = len(evidence.checkpoints)
    if evidence.hang is not None:
        attempt.hang = evidence.hang
