"""The page of one job: its end, the reason, the culprit, the decisions, and how each node and rank spent its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from holdfast.decide.gang_view import GangView
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.events import Event, JobSubmitted
from holdfast.model.exit_report import Evidence, ExitReport, Outcome, SourceLines
from holdfast.model.human_format import ranks
from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun
from holdfast.record.job_directory import logs_of
from holdfast.record.job_views import JobDetail, JobState, Survey, detail
from holdfast.record.owner_lock import OwnerLiveness, life_of
from holdfast.record.state_directory import job_dir
from holdfast.report.brief_report import report_entries
from holdfast.report.failure_place import FailurePlace, scene_of, source_of
from holdfast.report.log_files import attempts_of, parts_of
from holdfast.report.page.job_page import MOST_EVIDENCE, MOST_OTHERS
from holdfast.report.page.page_facts import commands_of, facts_of, others, then_of
from holdfast.report.swimlane import Swimlane
from holdfast.report.text_report import headline
from holdfast.web.jobs_page import Dot, dot_of
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.log_excerpt import Excerpt, excerpt
from holdfast.web.owner_view import REPLAYED, Budget, budgets_of, next_failure, waits
from holdfast.web.page_parts import Home, Page, PageRequest
from holdfast.web.running_job import MOST_TAIL, RunningAttempt, running_attempt

#: The size from which on the culprit's log is not read for its last lines.
MOST_TAIL_BYTES = 8 << 20
#: Maximum number of ranks that have a link to their logs.
MOST_RANKS = 500


class CollateralEntry(Noun, frozen=True, kw_only=True):
    """Ranks that are not the cause of the failure, and the reason why they ended."""

    ranks: str
    why: str


class LogLink(Noun, frozen=True, kw_only=True):
    """A link to the page with a rank's logs."""

    rank: int
    role: str
    href: str
    culprit: bool = False


class Entry(Noun, frozen=True, kw_only=True):
    """One line of the report. `label`: such as `where`; empty for the line about the culprit."""

    label: str
    text: str


class AttemptEntry(Noun, frozen=True, kw_only=True):
    """One ended attempt."""

    record: AttemptRecord
    dot: Dot
    #: What was decided then, and why.
    then: str


class JobPage(Noun, frozen=True, kw_only=True):
    """The content of the page of one job. Times are seconds since the epoch."""

    title: str
    id: str
    name: str
    state: str
    created: float
    ended: float | None = None
    host: str
    #: One sentence: the exception as printed, the rank and the node; for a running job, its state.
    headline: str
    #: Whether the job's owner died without recording how the job ended.
    gone: bool = False
    #: The report about the end of the job; for a running job, about its last failed attempt.
    report: ExitReport | None = None
    evidence: tuple[Evidence, ...] = ()
    more_evidence: int = 0
    attempts: tuple[AttemptEntry, ...] = ()
    #: The state of a running job's gang, as its owner sees it.
    view: GangView | None = None
    budgets: tuple[Budget, ...] = ()
    next_failure: str = ""
    others: tuple[CollateralEntry, ...] = ()
    commands: tuple[str, ...] = ()
    logs: tuple[LogLink, ...] = ()
    more_logs: int = 0
    swimlane: Swimlane | None = None
    #: The query that each link to this job's pages needs to select the state directory; empty if the server has only
    #: one.
    more: str = ""
    #: The report's first line as `holdfast show` prints it.
    text: str = ""
    #: The first line of the exception as the program printed it; empty: there was none.
    exception: str = ""
    #: The source lines around the place of the failure, as they were when the attempt ended.
    source: SourceLines | None = None
    #: The lines of the report as `holdfast show` prints them.
    entries: tuple[Entry, ...] = ()
    #: The last lines of the culprit's log before and at the deciding line.
    tail: Excerpt | None = None
    tail_href: str = ""
    running: RunningAttempt | None = None


def read(ask: PageRequest) -> JobPage:
    """Collect everything that is recorded about one job. Raise `NoSuchPage`."""
    home, view = ask.job()
    known = detail(Survey(home=home.path, jobs=(view,)), view)
    history = REMEMBERED.events(home.path, view.id)
    runs = view.state is JobState.RUNNING
    gone = runs and life_of(job_dir(home.path, view.id)) is OwnerLiveness.DEAD
    owners = REPLAYED.view(home.path, view.id) if runs and not gone else None
    failed = [record.report for record in known.attempts if record.report.code]
    report = known.report.report if known.report else failed[-1] if failed else None
    spec = spec_of(history)
    spoken = report.evidence if report else ()
    failure = known.report
    if failure is None and report is not None:
        failure = JobReport(
            job_id=view.id, name=view.name, outcome=Outcome.FAILED, report=report, attempts=known.attempts
        )
    place = scene_of(failure.report, logs_of(home.path, view.id)) if failure and failure.report.code else None
    logs = logs_of_job(ask, home, view.id, report)
    return JobPage(
        title=f"{view.name} {view.id}",
        id=view.id,
        name=view.name,
        state=view.outcome.value if view.outcome else "supervisor gone" if gone else view.state.value,
        created=view.created,
        ended=view.ended,
        host=view.host,
        headline=_headline(known.report is not None, report, owners, view.queued),
        gone=gone,
        report=report,
        evidence=tuple(spoken[:MOST_EVIDENCE]),
        more_evidence=max(len(spoken) - MOST_EVIDENCE, 0),
        attempts=tuple(
            AttemptEntry(record=record, dot=dot_of(record), then=then_of(record)) for record in known.attempts
        ),
        view=None if owners is None else _small(owners),
        budgets=budgets_of(spec.restarts, known.attempts) if spec else (),
        next_failure=next_failure(spec.restarts, known.attempts, ask.now) if spec and runs and not gone else "",
        others=_others(failure, history, known) if failure and failure.report.code else (),
        commands=commands_of(
            view.id, runs, known.report is not None and known.report.outcome is Outcome.FAILED, report
        ),
        logs=logs[:MOST_RANKS],
        more_logs=max(len(logs) - MOST_RANKS, 0),
        swimlane=REMEMBERED.swimlane(home.path, view, known.attempts, ask.now if runs and not gone else None),
        more=f"&home={home.key}" if len(ask.homes) > 1 else "",
        text=headline(known.report) if known.report else "",
        exception=place.said if place else "",
        entries=tuple(Entry(label=label, text=text) for label, text in report_entries(failure, place))
        if failure and place
        else (),
        source=source_of(failure.report, place) if failure and place else None,
        tail=_tail(place) if place else None,
        running=running_attempt(ask, home, view, spec, owners, history) if owners is not None else None,
        tail_href=next((log.href for log in logs if log.culprit), ""),
    )


PAGE = Page("/job/{job}", "job.html", read)


def _tail(place: FailurePlace) -> Excerpt | None:
    """Return the last lines of the culprit's log, up to the line that decided the report."""
    path = Path(place.log)
    try:
        if not place.log or place.last_line is None or path.stat().st_size > MOST_TAIL_BYTES:
            return None
    except OSError:
        return None
    found = excerpt(path, path.stem, around=place.last_line, deciding=place.last_line)
    lines = [line for line in found.lines if line.number <= place.last_line]
    return msgspec.structs.replace(found, lines=tuple(lines[-MOST_TAIL:]))


def spec_of(history: Iterable[tuple[float, Event]]) -> JobSpec | None:
    """Return the job's spec, from its first event."""
    return next((event.spec for _, event in history if isinstance(event, JobSubmitted)), None)


def logs_of_job(ask: PageRequest, home: Home, job: str, report: ExitReport | None) -> tuple[LogLink, ...]:
    """Return links to the logs of the last attempt on this machine, the culprit's first."""
    numbers = attempts_of(home.path, job)
    if not numbers:
        return ()
    number = report.attempt if report and report.attempt in numbers else numbers[-1]
    culprits = {one.rank for one in (*([report.first] if report.first else []), *report.also)} if report else set()
    found = {
        part.rank: LogLink(
            rank=part.rank,
            role=part.role,
            href=f"/job/{job}/{number}/{part.rank}{ask.at(home)}",
            culprit=part.rank in culprits,
        )
        for part in parts_of(home.path, job, number)
    }
    return tuple(sorted(found.values(), key=lambda log: (not log.culprit, log.rank)))


def _others(
    failure: JobReport, history: Sequence[tuple[float, Event]], known: JobDetail
) -> tuple[CollateralEntry, ...]:
    """Explain why the other ranks are not the cause. Ranks with the same explanation are grouped."""
    groups = others(failure, facts_of(history, known, failure.report.attempt).evidence)[:MOST_OTHERS]
    return tuple(CollateralEntry(ranks=ranks(each.ranks), why=each.words) for each in groups)


def _headline(over: bool, report: ExitReport | None, view: GangView | None, queued: str) -> str:
    if over and report is not None:
        return report.reason
    if view is not None:
        until = f", waits for {waits(view)}" if view.waits_for else ""
        return f"Attempt {view.attempt} is {view.phase.value}{until}"
    if queued:
        return f"It waits to be started again: {queued}"
    return "The last word of its supervisor is in the journal; how it stands now is not known here."


def _small(view: GangView) -> GangView:
    """Return the gang's view without its members.

    The swimlane shows the members, and ten thousand would make the page too large.
    """
    return msgspec.structs.replace(view, members=())
