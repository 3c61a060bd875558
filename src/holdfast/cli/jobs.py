"""`holdfast jobs`: lists the jobs in the state directory, newest first."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.cluster_jobs import in_cluster, of_a_cluster
from holdfast.cli.job_access.queued_jobs import QueuedJob, Queues, queues
from holdfast.cli.options.completion_values import classes, states
from holdfast.cli.options.completion_values import jobs as jobs_known
from holdfast.cli.options.job_filter import STATES, filtered_jobs, job_filter
from holdfast.cli.options.shared_options import pipeable, utc_option
from holdfast.cli.output.printing import print_line, say
from holdfast.cli.output.table import fitted, table
from holdfast.errors import BadUsage
from holdfast.model.human_format import counted
from holdfast.record.job_lookup import find
from holdfast.record.job_views import last_reports
from holdfast.report.terminal_text import Style, harmless, paint, wants_colour

if TYPE_CHECKING:
    from holdfast.model.exit_report import ExitReport
    from holdfast.node.attempt_progress import AttemptProgress
    from holdfast.record.job_views import JobView


@click.command()
@click.argument("job", required=False, default="", shell_complete=jobs_known)
@click.option(
    "--state",
    multiple=True,
    metavar="STATE",
    shell_complete=states,
    help=f"Only jobs in this state: {', '.join(STATES)}.",
)
@click.option("--since", metavar="WHEN", help="Only jobs that began since then: 30m, 12h, 7d, or a date.")
@click.option("--name", default="", metavar="NAME", help="Only jobs of this name; `*` and `?` as in a shell.")
@click.option(
    "--class",
    "phrase",
    default="",
    metavar="CLASS",
    shell_complete=classes,
    help="Only jobs that ended with this failure class.",
)
@click.option("-n", "--limit", "limit", metavar="N", help="At most N jobs; 0: all.  [50 on a terminal, else all]")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@of_a_cluster(short=False)
@pipeable
def command(
    job: str,
    state: tuple[str, ...],
    since: str | None,
    name: str,
    phrase: str,
    limit: str | None,
    as_json: bool,
    platform: str | None,
    namespace: str | None,
) -> None:
    """List the jobs of this machine, the newest first. Jobs that wait in a queue come before them.

    JOB: list only jobs with this name, or whose id begins with it.
    """
    if limit is not None and (platform is not None or not limit.isdecimal()):
        # With `--platform kubernetes`, `-n` means the namespace, as in kubectl; otherwise it is the number of jobs.
        if platform is None:
            raise BadUsage(
                f"-n {limit}: expected a number of jobs; a namespace needs --platform kubernetes",
                hint="holdfast jobs -n 20",
            )
        namespace, limit = namespace or limit, None
    if (cluster := in_cluster(platform, namespace)) is not None:
        from holdfast.cli.job_access.cluster_jobs import jobs

        if job or state or since or name or phrase:
            raise BadUsage(
                "JOB, --state, --since, --name and --class are for the jobs of this machine",
                hint="holdfast jobs --platform kubernetes",
            )
        jobs(cluster, namespace, as_json)
        return
    wish = job_filter(state, since, name, phrase, None if limit is None else int(limit), time.time(), job)
    seen = queues()
    found, queued = seen.survey, seen.waiting
    if as_json:
        from holdfast.node.attempt_progress import progress_of
        from holdfast.record.recorded_checks import check_states
        from holdfast.report.report_json import pretty

        checks = check_states(found.home, found.jobs)
        rows = [
            {
                "id": view.id,
                "name": view.name,
                "state": view.state.value,
                "outcome": view.outcome,
                "code": view.code,
                "phrase": view.phrase,
                "created": view.created,
                "ended": view.ended,
                "host": view.host,
                "pid": view.pid,
                "attempts": view.attempts,
                "checks": checks.get(view.id),
                "platform": view.platform,
                "queued": seen.again.get(view.id, view.queued) or None,
                "progress": progress_of(found.home, view),
            }
            for view in filtered_jobs(found.jobs, wish)
        ]
        print_line(pretty({"schema": "holdfast.jobs/1", "jobs": rows, "queued": queued}))
        return
    if not found.jobs and not queued:
        print_line(f"no job has run yet with its state in {found.home}")
        return
    if not wish.is_any:
        queued = ()  # the filter cannot match queued jobs, which have no state, class or start time
    fitting = filtered_jobs(found.jobs, wish)
    shown = fitting[:_ON_A_TERMINAL] if limit is None and sys.stdout.isatty() else fitting
    if not shown and not queued:
        if job:
            find(found, job)  # raises an error with the most similar names if there is no such job
        say(f"none of {counted(len(found.jobs), 'job')} fits\n  try: holdfast jobs")
        return
    _print(shown, queued, seen)
    if left := len(fitting) - len(shown):
        say(f"{left} older {'job is' if left == 1 else 'jobs are'} not shown\n  try: holdfast jobs -n 0")


_ON_A_TERMINAL = 50


def _print(shown: Sequence[JobView], queued: Sequence[QueuedJob], seen: Queues) -> None:
    """Print the table of jobs. On a terminal, or if COLUMNS is set, it is at most as wide as the screen."""
    from holdfast.node.attempt_progress import progress_of

    on_screen = sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))
    width = shutil.get_terminal_size((80, 24)).columns if on_screen else None
    lines: list[tuple[str, ...]] = [("JOB", "NAME", "STATE", "CODE", "WHAT", "ATTEMPTS", "STARTED", "TOOK")]
    lines += map(_queued_row, queued)
    home = seen.survey.home
    failed = last_reports(home, [view for view in shown if view.phrase])
    for view in shown:
        lines.append(row(view, seen.again.get(view.id, ""), failed.get(view.id), progress_of(home, view)))
    # A job of this machine's queue has the same id there.
    of_shown = (view.platform if view.platform and view.platform.id != view.id else None for view in shown)
    of_platform = [*(each.platform for each in queued), *of_shown]
    if platforms := {known.platform for known in of_platform if known is not None}:
        titled = [" ".join(sorted(platforms)).upper(), *(harmless(known.id) if known else "" for known in of_platform)]
        lines = [(line[0], known_as, *line[1:]) for line, known_as in zip(lines, titled, strict=True)]
    if width is not None and max(len(line) for line in table(lines).splitlines()) > width:
        at = lines[0].index("STARTED")
        ages = ["STARTED", *("" for _ in queued), *(_ago(view) for view in shown)]
        lines = [(*line[:at], age, *line[at + 1 :]) for line, age in zip(lines, ages, strict=True)]
        lines = fitted(lines, width, drop=("CODE", "ATTEMPTS", "TOOK"), cut=("NAME", "WHAT"))
    colour = wants_colour(sys.stdout, os.environ)
    at_state = lines[0].index("STATE")

    def painted(column: int, word: str, padded: str) -> str:
        style = _STYLES.get(word) if column == at_state else None
        return paint(padded, style, colour) if style else padded

    print_line(table(lines, painted))


_STYLES = {
    "running": Style.STRONG,
    "succeeded": Style.GOOD,
    "failed": Style.BAD,
    "stopped": Style.WARN,
    "queued": Style.WARN,
    "out of sight": Style.WARN,
}


def _progress_words(progress: AttemptProgress | None, now: float) -> str:
    return "" if progress is None else progress.words(now, briefly=True)


def _ago(view: JobView) -> str:
    from holdfast.record.local_time import ago

    return ago(view.created, time.time())


def _queued_row(job: QueuedJob) -> tuple[str, ...]:
    """Return the table's row of a job that has not begun and therefore has no id of holdfast yet."""
    return "-", harmless(job.name), job.state, "", harmless(job.reason), "", "", ""


def row(view: JobView, queued: str, report: ExitReport | None, progress: AttemptProgress | None) -> tuple[str, ...]:
    """Return the table's row of one job.

    `queued`: the reason why the job waits in a queue; "" if it does not wait. `report`: the report about the job's end.
    `progress`: the progress of the running attempt.
    """
    from holdfast.model.human_format import duration
    from holdfast.record.local_time import clock
    from holdfast.report.failure_place import cause_of

    now = time.time()
    return (
        view.id,
        harmless(view.name),
        view.outcome.value if view.outcome else view.state.value,
        "" if view.code is None else str(view.code),
        cause_of(view.phrase, report) if view.phrase else harmless(queued) or _progress_words(progress, now),
        str((view.attempts if progress is None else progress.attempt) or ""),
        clock(view.created),
        duration((now if view.ended is None else view.ended) - view.created),
    )
