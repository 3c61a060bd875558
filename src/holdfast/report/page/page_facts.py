"""Collects facts for the page from a job's journal: how the job was submitted, and how each rank ended.

The report lacks these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.decisions import AttemptRecord, DecisionKind, JobReport
from holdfast.model.events import Event, EvidenceCollected, JobResumed, JobSubmitted, NodeJoined
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import ExitReport, Outcome, WorkerExit
from holdfast.model.human_format import duration
from holdfast.model.job_spec import JobSpec, NodeInfo
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import JobDetail


class JournalFacts(Noun, frozen=True, kw_only=True):
    """Facts from a job's journal: its last spec, its nodes, and the evidence of the attempt that the report is
    about."""

    spec: JobSpec | None = None
    nodes: tuple[NodeInfo, ...] = ()
    evidence: AttemptEvidence | None = None


def facts_of(events: Iterable[tuple[float, Event]], known: JobDetail, attempt: int | None = None) -> JournalFacts:
    """Collect the facts from the journal's events, oldest first. `attempt`: the attempt whose evidence is wanted; None:
    that of the job's report, or the last.
    """
    spec: JobSpec | None = None
    nodes: dict[str, NodeInfo] = {}
    evidence: AttemptEvidence | None = None
    wanted = attempt if attempt is not None or known.report is None else known.report.report.attempt
    for _, event in events:
        match event:
            case JobSubmitted():
                spec = event.spec
                nodes |= {node.name: node for node in event.nodes}
            case JobResumed():
                spec = event.spec or spec
                nodes |= {node.name: node for node in event.nodes}
            case NodeJoined():
                nodes[event.node.name] = event.node
            case EvidenceCollected() if wanted is None or event.attempt == wanted:
                evidence = event.evidence
            case _:
                pass
    return JournalFacts(spec=spec, nodes=tuple(nodes.values()), evidence=evidence)


class RankGroup(Noun, frozen=True, kw_only=True):
    """Ranks that ended in the same way, and why these ranks are not the cause."""

    ranks: tuple[int, ...]
    ended: str
    why: str

    @property
    def words(self) -> str:
        """Why these ranks are not the cause, and how they ended: `finished its work (exit status 0)`."""
        return f"{self.why} ({self.ended})" if self.ended else self.why


def others(report: JobReport, evidence: AttemptEvidence | None) -> tuple[RankGroup, ...]:
    """Group the ranks that the report does not name as the culprit, each group with the reason."""
    last = report.report
    named = {culprit.rank for culprit in (*((last.first,) if last.first else ()), *last.also)}
    exits = {w.rank: w.exit for w in evidence.workers if w.exit is not None} if evidence is not None else {}
    if evidence is None or not exits:
        rest = tuple(sorted(set(last.collateral) - named))
        return (RankGroup(ranks=rest, ended="", why="ended because of the culprit"),) if rest else ()
    first = exits.get(last.first.rank) if last.first is not None else None
    if first is not None and first.after_stop:
        first = None  # holdfast stopped this rank with the others, so the order of their exits has no meaning
    collateral = set(last.collateral)
    found: dict[tuple[str, str], list[tuple[int, float | None]]] = {}
    for rank, told in sorted(exits.items()):
        if rank in named:
            continue
        key = (told.how, _why(told, rank in collateral, report.outcome, hang=evidence.hang is not None))
        found.setdefault(key, []).append((rank, _later(first, told)))
    return tuple(
        RankGroup(ranks=tuple(rank for rank, _ in each), ended=how + _after([late for _, late in each]), why=why)
        for (how, why), each in found.items()
    )


def _why(told: WorkerExit, collateral: bool, outcome: Outcome, *, hang: bool) -> str:
    if told.ok:
        return "finished its work"
    if told.after_stop and not told.was_dying and hang:
        return "waited; the hang detector names another rank, and holdfast stopped this one with it"
    if told.after_stop and not told.was_dying:
        return "ran until holdfast stopped the attempt"
    if collateral:
        return "ended by itself after the culprit, and its log and exit say nothing that weighs more"
    return "failed too" if outcome is Outcome.FAILED else "ended by itself"


def _later(first: WorkerExit | None, told: WorkerExit) -> float | None:
    if first is None or first.ended_at is None or told.ended_at is None:
        return None
    return told.ended_at - first.ended_at


def _after(late: Sequence[float | None]) -> str:
    """Return the time from the culprit's exit to the exits of other ranks, as in `, 12 ms to 0.4 s after it`."""
    known = sorted(seconds for seconds in late if seconds is not None and seconds >= 0)
    if not known:
        return ""
    least, most = duration(known[0]), duration(known[-1])
    return f", {least} after it" if least == most else f", {least} to {most} after it"


def budgets(report_attempts: JobReport | None, known: JobDetail, spec: JobSpec | None) -> list[str]:
    """Return lines with the number of restarts so far, and the number that the job may have."""
    records = report_attempts.attempts if report_attempts is not None else known.attempts
    again = [r.decision for r in records if r.decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE)]
    charged = sum(each.charged for each in again)
    if spec is None:
        return [f"{charged} restarts charged to --max-restarts, {len(again) - charged} not."]
    policy = spec.restarts
    return [
        f"{charged} charged to --max-restarts, which is {policy.max_restarts}; a sign of progress gives them back.",
        f"{len(again) - charged} charged to the platform budget, which is {policy.platform_max_restarts}.",
        f"{policy.same_failure} equal failures without progress end the job (--same-failure)."
        if policy.same_failure
        else "Equal failures do not end the job (--same-failure 0).",
        f"{policy.max_in_a_row} failures in a row without progress end the job.",
    ]


def then_of(record: AttemptRecord) -> str:
    """Return what was decided after an attempt, with the reason: what was avoided, and the signs of progress."""
    decision = record.decision
    avoid = f"; avoiding {', '.join(decision.avoid)}" if decision.avoid else ""
    signs = "; ".join(sign.text for sign in record.signs if sign.text not in decision.reason)
    return f"{decision.reason}{avoid}{f'; progress: {signs}' if signs else ''}"


def commands_of(job: str, runs: bool, failed: bool, report: ExitReport | None) -> tuple[str, ...]:
    """Return the commands that show more about a job, the most useful first."""
    if runs:
        return (f"holdfast logs {job} --follow", f"holdfast stop {job} --reason TEXT")
    if failed and report is not None and report.first is not None:
        logs = f"holdfast logs {job} --attempt {report.attempt} --rank {report.first.rank}"
        return tuple(dict.fromkeys((report.hint or logs, logs, f"holdfast show {job}")))
    return (f"holdfast show {job}",)
