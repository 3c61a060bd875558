"""Jobs that were submitted to a platform's queue and have not begun."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.options.shared_options import survey
from holdfast.cli.output.printing import say
from holdfast.errors import HoldfastError
from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import Survey

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.platforms.job_queue import JobQueue, QueueEntry
    from holdfast.record.submitted_jobs import SubmissionRecord


_LONG_S = 300 * 86_400.0


class QueuedJob(Noun, frozen=True, kw_only=True):
    """One job that is waiting in a queue."""

    platform: PlatformJob
    name: str
    submitted: float
    #: The platform's name for the job's state in lower case, such as `pending`; `queued` if the platform does not
    #: answer.
    state: str
    reason: str = ""
    begins: float | None = None
    #: The id of the job array; "" if the job belongs to no array.
    array: str = ""
    output: str = ""


class Queues(Noun, frozen=True, kw_only=True):
    """All jobs of the state directory, and their states in the platforms' queues."""

    survey: Survey
    #: Jobs that have not begun, the newest first.
    waiting: tuple[QueuedJob, ...] = ()
    #: Maps the id of a job that waits for its restart to the queue's reason for the wait.
    again: dict[str, str] = {}


def queues() -> Queues:
    """Query the queues of the platforms, for at most two seconds. Skip a platform for which no job waits.

    Report in one line a submission that never began and is no longer in the queue. Close a job that waited for its
    restart and is no longer in the queue.
    """
    from holdfast.record.job_views import JobState
    from holdfast.record.submitted_jobs import read_submissions, remove_submission

    found = survey()
    begun = {view.platform.id for view in found.jobs if view.platform is not None}
    notes = []
    for note in read_submissions(found.home):
        if not note.array and note.platform.id in begun:
            remove_submission(found.home, note.platform)
        else:
            notes.append(note)
    waits = (JobState.QUEUED, JobState.OUT_OF_SIGHT)
    again = {view.id: view.platform for view in found.jobs if view.state in waits and view.platform is not None}
    if not notes and not again:
        return Queues(survey=found)
    rows: list[QueuedJob] = []
    reasons: dict[str, str] = {}
    dropped: dict[str, str] = {}
    for name in sorted({known.platform for known in (*(note.platform for note in notes), *again.values())}):
        seen = _at_platform(
            name,
            [note for note in notes if note.platform.platform == name],
            {job: known for job, known in again.items() if known.platform == name},
            begun,
            found,
        )
        rows += seen.rows
        reasons |= seen.reasons
        dropped |= dict.fromkeys(seen.dropped, "")
    if dropped:
        found = survey(dropped)
    waiting = tuple(sorted(rows, key=lambda row: row.submitted, reverse=True))
    return Queues(survey=found, waiting=waiting, again=reasons)


class _QueueLook(NamedTuple):
    """The jobs in one platform's queue."""

    rows: list[QueuedJob]
    #: Maps the id of a job that waits for its restart to the reason for the wait.
    reasons: Mapping[str, str] = {}
    #: Ids of jobs that waited for their restart and have left the queue.
    dropped: Sequence[str] = ()


def _at_platform(
    name: str,
    notes: Sequence[SubmissionRecord],
    again: Mapping[str, PlatformJob],
    begun: Collection[str],
    found: Survey,
) -> _QueueLook:
    """Query one platform's queue.

    `name`: the platform. `notes`: the records of submissions to this platform. `again`: maps the platform's id of a job
    that waits for its restart to the job. `begun`: ids of the platform's jobs that have begun. `found`: all jobs.
    """
    from holdfast.platforms.job_queue import QueueUnknown
    from holdfast.platforms.platform_registry import queue_of
    from holdfast.record.job_views import JobState

    queue = queue_of(name)
    if queue is None:
        return _QueueLook([_unknown(note) for note in notes])
    queued = queue.entries()
    if isinstance(queued, QueueUnknown):
        if notes or any(view.state is JobState.QUEUED for view in found.jobs):
            say(f"what waits in the queue is not known: {queued.why}")
        return _QueueLook([_unknown(note) for note in notes])
    rows = [row for note in notes for row in _rows(note, queue, queued, begun, found.home)]
    # Another cluster may share this home, and its queue may have the jobs that this queue lacks. Only that cluster can
    # tell whether such a job has ended.
    over = {job: known for job, known in again.items() if known.id not in queued}
    dropped = [job for job, known in over.items() if known.cluster and known.cluster == queue.cluster()]
    waits = {job: queued[known.id] for job, known in again.items() if known.id in queued}
    return _QueueLook(rows, {job: entry.reason or entry.state.lower() for job, entry in waits.items()}, dropped)


def _rows(
    note: SubmissionRecord, queue: JobQueue, queued: Mapping[str, QueueEntry], begun: Collection[str], home: Path
) -> Iterator[QueuedJob]:
    """Yield a row for each job of a submission (`note`) that has not begun.

    If the queue has none of its jobs, remove the submission's record. `queued`: the queue's entries, by the platform's
    id of a job.
    """
    number = note.platform.id
    ids = [each for each in queued if each == number or each.startswith(f"{number}_")]
    if not ids:
        from holdfast.record.submitted_jobs import remove_submission

        if note.platform.cluster and note.platform.cluster != queue.cluster():
            yield _unknown(note)  # the job may be in the queue of another cluster
            return
        remove_submission(home, note.platform)
        if not any(each == number or each.startswith(f"{number}_") for each in begun):
            say(_gone(note, queue))
    for each in ids:
        if each in begun:
            continue
        state = queued[each]
        yield QueuedJob(
            platform=PlatformJob(platform=note.platform.platform, id=each, cluster=note.platform.cluster),
            name=note.name,
            submitted=note.at,
            state="starting" if state.state == "RUNNING" else state.state.lower(),
            reason=state.reason,
            begins=state.begins,
            array=number if note.array else "",
            output=note.output,
        )


def _unknown(note: SubmissionRecord) -> QueuedJob:
    return QueuedJob(
        platform=note.platform,
        name=note.name,
        submitted=note.at,
        state="queued",
        reason="not known",
        array=note.platform.id if note.array else "",
    )


def _gone(note: SubmissionRecord, queue: JobQueue) -> str:
    from holdfast.platforms.platform_registry import title_of

    number, title = note.platform.id, title_of(note.platform.platform)
    output = note.output.replace("%j", number).replace("%A", number)
    return (
        f"job {number} ({note.name}) is in {title}'s queue no more, and holdfast has never begun in it: it was "
        f"cancelled, or could not start\n  try: {queue.past_command(number)}; cat {output}"
    )


def of_word(rows: Iterable[QueuedJob], job: str) -> list[QueuedJob]:
    """Return the queued jobs that the typed word `job` names: by their id, the id of their array, or their name."""
    known = list(rows)
    for meant in (
        [row for row in known if row.platform.id == job],
        [row for row in known if row.array == job],
        [row for row in known if row.name == job],
    ):
        if meant:
            return meant
    return []


def in_queue(job: str) -> list[QueuedJob]:
    """Query the queue again, and return the queued jobs that `job` may mean."""
    return of_word(queues().waiting, job)


def queued_job_text(row: QueuedJob) -> str:
    """Describe a queued job in words, for `show` and `logs`."""
    from holdfast.platforms.platform_registry import queue_of, title_of
    from holdfast.record.local_time import clock
    from holdfast.report.terminal_text import harmless

    title, queue = title_of(row.platform.platform), queue_of(row.platform.platform)
    look = f"\n  to look    {queue.look_command(row.platform.id)}" if queue is not None else ""
    why = f" ({harmless(row.reason)})" if row.reason else ""
    # Slurm assumes that a job without a time limit ends after a year. A start time in a year only results from that, so
    # omit it.
    soon = row.begins is not None and row.begins - row.submitted < _LONG_S
    begins = f"\n  begins     {clock(row.begins)}, as {title} expects it now" if row.begins is not None and soon else ""
    return (
        f"holdfast: {title} job {row.platform.id} ({harmless(row.name)}) {row.state.upper()}{why}, "
        f"submitted at {clock(row.submitted)}{begins}{look}\n"
        f"  to stop    holdfast stop {row.platform.id} --reason TEXT"
    )


def take_out(home: Path, rows: Sequence[QueuedJob], told: Callable[[str], None]) -> None:
    """Cancel these jobs, and pass a sentence about each to `told`. Raise HoldfastError if the platform fails."""
    from holdfast.platforms.platform_registry import queue_of, title_of
    from holdfast.record.submitted_jobs import remove_submission

    for number in dict.fromkeys(
        row.platform.id if row.state == "starting" else row.array or row.platform.id for row in rows
    ):
        of_it = [row for row in rows if number in (row.platform.id, row.array)]
        platform = of_it[0].platform.platform
        title, queue = title_of(platform), queue_of(platform)
        if queue is None:
            raise HoldfastError(f"{title} job {number} was not cancelled: {title} cannot be queried here")
        answer = queue.cancel(number, waiting=all(row.state != "starting" for row in of_it))
        # The job may have begun after the queue was read.
        began = [row.platform.id for row in of_it if row.state != "starting" and queue.begins(row.platform.id)]
        for one in began:
            answer = queue.cancel(one, waiting=False) if answer.ok else answer
        if not answer.ok:
            raise HoldfastError(
                f"{title} job {number} was not cancelled: {answer.said}", hint=queue.end_command(number)
            )
        if not of_it[0].array:
            remove_submission(home, of_it[0].platform)
        why = f" ({of_it[0].reason})" if of_it[0].reason else ""
        tasks = f"{len(of_it)} jobs of the array {number}" if of_it[0].array else f"{title} job {number}"
        when = "while it began" if began or of_it[0].state == "starting" else "before it began"
        told(f"{tasks} ({of_it[0].name}), {of_it[0].state}{why}: cancelled {when}")
