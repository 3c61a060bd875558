"""Journals of jobs that never ran, for pictures: as many ranks, nodes and attempts as a test asks for."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser

from hypothesis import strategies as st

from holdfast.model.check_results import ChecksTaken, CheckState
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.events import AgentReported, ChecksFinished, ChecksMoved, Event, EvidenceCollected, JobSubmitted
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import Blame, Culprit, ExitReport, Rerun, WorkerExit
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.model.job_spec import JobSpec, NodeInfo, Role

BEGAN = 1_795_400_000.0


def died_at(
    rank: int, node: str, attempt: int, at: float, *, signal: int | None = None, stopped: bool = False
) -> WorkerExit:
    return WorkerExit(
        role="worker",
        rank=rank,
        node=node,
        attempt=attempt,
        pid=1000 + rank,
        exit_code=None if signal else 1,
        signal=signal,
        started_at=BEGAN + 100 * (attempt - 1) + 1,
        ended_at=at,
        order=rank,
        after_stop=stopped,
    )


def story(
    *, nodes: int = 1, each: int = 4, attempts: int = 1, culprit: int = 1, node_name: str = "n{}", name: str = "job"
) -> tuple[list[tuple[float, Event]], list[AttemptRecord]]:
    """Each attempt takes 100 s: rank `culprit` dies in its 60th second, and the others are stopped."""
    names = [node_name.format(index) for index in range(nodes)]
    spec = JobSpec(name=name, roles=(Role(name="worker", count=nodes * each, command=("train",)),))
    infos = tuple(NodeInfo(name=each_name, slots=each) for each_name in names)
    events: list[tuple[float, Event]] = [(BEGAN, JobSubmitted(job_id="j", spec=spec, nodes=infos))]
    records = []
    for attempt in range(1, attempts + 1):
        found = _attempt(names, each, attempt, culprit)
        events += found[0]
        records.append(found[1])
    return events, records


def _attempt(
    names: Sequence[str], each: int, attempt: int, culprit: int
) -> tuple[list[tuple[float, Event]], AttemptRecord]:
    at = BEGAN + 100 * (attempt - 1)
    taken = ChecksTaken(state=CheckState.PASS)
    events: list[tuple[float, Event]] = [
        (at, ChecksMoved(attempt=attempt, round=1, taken=taken)),
        (at + 1, ChecksFinished(attempt=attempt, round=1, state=CheckState.PASS, taken=taken)),
    ]
    exits: list[WorkerExit] = []
    for index, node in enumerate(names):
        ranks = range(index * each, (index + 1) * each)
        for seconds, state in ((1, MemberState.BOOTING), (2, MemberState.GOING), (3, MemberState.UP)):
            members = tuple(Member(rank=rank, state=state) for rank in ranks)
            events.append((at + seconds, _reported(node, attempt, at + seconds, members)))
        own = [
            died_at(rank, node, attempt, at + 60)
            if rank == culprit
            else died_at(rank, node, attempt, at + 62 + (rank % 7) / 100, signal=15, stopped=True)
            for rank in ranks
        ]
        exits += own
        members = tuple(
            Member(
                rank=one.rank,
                state=MemberState.STOPPED if one.after_stop else MemberState.FAILED,
                exit=one,
                died_at=one.ended_at,
            )
            for one in own
        )
        events.append((at + 63, _reported(node, attempt, at + 63, members)))
    workers = tuple(WorkerEvidence(rank=one.rank, node=one.node, exit=one, last_step=40) for one in exits)
    events.append(
        (at + 64, EvidenceCollected(attempt=attempt, evidence=AttemptEvidence(attempt=attempt, workers=workers)))
    )
    first = next(one for one in exits if one.rank == culprit)
    report = ExitReport(
        code=236,
        phrase="UserException",
        blame=Blame.WORKLOAD,
        rerun=Rerun.UNKNOWN,
        reason=f"rank {culprit} raised KeyError",
        solution="Look at the traceback.",
        first=Culprit(role="worker", rank=culprit, node=first.node, at=first.ended_at),
        collateral=tuple(one.rank for one in exits if one.rank != culprit),
        attempt=attempt,
    )
    record = AttemptRecord(
        attempt=attempt,
        started_at=at,
        ended_at=at + 66,
        report=report,
        decision=Decision(kind=DecisionKind.RESTART, reason=f"restart {attempt}"),
        parts={
            "backoff": 2.0,
            "checking": 1,
            "preparing": 1,
            "starting": 1,
            "running": 57,
            "draining": 5,
            "decision": 1,
        },
        step=40,
    )
    return events, record


def _reported(node: str, attempt: int, at: float, members: tuple[Member, ...]) -> AgentReported:
    return AgentReported(
        report=Report(node=node, boot=1, attempt=attempt, stopped=attempt - 1, sent=at, members=members)
    )


class Tags(HTMLParser):
    """The tags and attributes of a page, without its texts: what a hostile text must not add to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


def tags(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """In the order of the page."""
    parser = Tags()
    parser.feed(page)
    parser.close()
    return parser.tags


#: Texts that look for a way out of their place.
HOSTILE_TEXT = st.text(st.sampled_from("<>&\"'`/= -!\x00\x1b\u202e\ud800\nab"), max_size=40) | st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</title></svg><b>", "<!--", "]]>", "</style>"]
)
