"""`holdfast logs JOB`: prints the workers' output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.cluster_jobs import in_cluster, of_a_cluster
from holdfast.cli.job_access.queued_jobs import in_queue, queued_job_text
from holdfast.cli.job_access.remote_owner import located
from holdfast.cli.options.completion_values import jobs
from holdfast.cli.options.shared_options import pipeable, utc_option
from holdfast.cli.output.printing import say
from holdfast.errors import BadUsage
from holdfast.record.job_lookup import LAST

if TYPE_CHECKING:
    from holdfast.model.job_spec import PlatformJob
    from holdfast.record.job_views import JobView, Survey
    from holdfast.record.owner_address import OwnerAddress
    from holdfast.report.merged_logs import LogLineFilter

#: The first and the longest pause between two queries of the queue, in seconds, while the user waits for a job to
#: begin.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0


@click.command()
@click.argument("job", required=False, default=LAST, shell_complete=jobs)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="The attempt; default: the last one.")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Only this rank.")
@click.option("--stdout", "only_stdout", is_flag=True, help="Only lines from stdout.")
@click.option("--stderr", "only_stderr", is_flag=True, help="Only lines from stderr.")
@click.option("--since", metavar="TIME", help="Only lines since this time: an age (10m, 2h) or a date and time.")
@click.option("--until", metavar="TIME", help="Only lines before this time.")
@click.option("--grep", "-g", metavar="RE", help="Only lines that match this regular expression (RE2).")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each log.")
@click.option("--timestamps", "-t", is_flag=True, help="Print the time before each line.")
@click.option("--path", "paths", is_flag=True, help="Print the paths of the log files instead of their contents.")
@click.option("--follow", "-f", is_flag=True, help="Also print later lines, until the job ends.")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
@of_a_cluster()
@pipeable
def command(
    job: str,
    attempt: int | None,
    rank: int | None,
    only_stdout: bool,
    only_stderr: bool,
    since: str | None,
    until: str | None,
    grep: str | None,
    tail: int | None,
    timestamps: bool,
    paths: bool,
    follow: bool,
    as_json: bool,
    platform: str | None,
    namespace: str | None,
) -> None:
    """Print a job's logs. JOB is an id or its beginning, or a name; without it, the last job.

    One log is printed unchanged. The lines of several logs are sorted by time, each after its worker and stream.
    """
    lines = _lines(since, until, grep, tail, follow)
    if (cluster := in_cluster(platform, namespace, job)) is not None:
        from holdfast.cli.job_access.cluster_jobs import logs

        typed = (("--attempt", attempt), ("--stdout", only_stdout), ("--stderr", only_stderr), ("--path", paths))
        refused = [name for name, given in typed if given]
        logs(
            cluster,
            namespace,
            job,
            lines,
            rank=rank,
            timestamps=timestamps,
            as_json=as_json,
            following=follow,
            refused=refused,
        )
        return
    from holdfast.cli.job_logs.local_logs import (
        LogOptions,
        files_here,
        follow_logs,
        parts_wanted,
        print_files,
        print_logs,
    )
    from holdfast.record.job_views import JobState
    from holdfast.report.log_files import STREAMS

    try:
        found, view, note = located(job)
    except BadUsage:
        if not (queued := in_queue(job)):
            raise
        say(f"{queued_job_text(queued[0]).removeprefix('holdfast: ')}\n  logs       there are none before it begins")
        if not follow:
            return
        found, view, note = _begun(job, queued[0].platform)
    streams = tuple(name for name, only in zip(STREAMS, (only_stdout, only_stderr), strict=True) if only) or STREAMS
    wish = LogOptions(attempt=attempt, rank=rank, streams=streams, lines=lines, timestamps=timestamps, as_json=as_json)
    if note is not None and view.state in (JobState.RUNNING, JobState.OUT_OF_SIGHT):
        from holdfast.cli.job_logs.logs_over_nodes import logs_over_nodes

        if logs_over_nodes(found.home, view, note, wish, following=follow and not paths, paths=paths):
            return
    try:
        number, parts = parts_wanted(found.home, view.id, wish)
    except BadUsage as error:
        if note is None or rank is None:
            raise
        from holdfast.cli.job_logs.logs_left_on_nodes import missing_log_error

        raise missing_log_error(error, found.home, view, note, rank, attempt) from None
    if note is not None and rank is None and view.state is JobState.ENDED and parts:
        from holdfast.cli.job_logs.logs_left_on_nodes import tell_the_others

        tell_the_others(found.home, view, number, parts)
    if paths:
        print_files(view.id, files_here(parts), as_json=as_json)
        return
    if follow and view.state is JobState.QUEUED and not parts and view.platform is not None:
        say(f"job {view.id} ({view.name}) waits for its turn")
        found, view, note = _begun_in_place(view, view.platform)
        number, parts = parts_wanted(found.home, view.id, wish)
    runs = view.state is JobState.RUNNING
    if follow and runs:
        follow_logs(found.home, view, wish)
        return
    if not parts:
        waits = runs or view.state is JobState.QUEUED
        say(f"job {view.id} has written no logs{' yet' if waits else ''}")
        return
    if attempt is None and number > 1 and not wish.in_time:
        say(f"attempt {number}, the last; others with --attempt 1{f' to {number - 1}' if number > 2 else ''}")
    print_logs(view, number, parts, wish)


def _lines(since: str | None, until: str | None, grep: str | None, tail: int | None, follow: bool) -> LogLineFilter:
    """Return the filter for the lines. Raise `BadUsage` for options that contradict each other."""
    import time

    from holdfast.cli.options.job_filter import parse_moment
    from holdfast.report.merged_logs import LogLineFilter, pattern_of

    if follow and until is not None:
        raise BadUsage("--until with --follow: expected one of them", hint="holdfast logs --until TIME")
    now = time.time()
    return LogLineFilter(
        since=None if since is None else parse_moment(since, now, "--since"),
        until=None if until is None else parse_moment(until, now, "--until"),
        pattern=None if grep is None else pattern_of(grep),
        tail=tail,
    )


def _begun_in_place(view: JobView, platform: PlatformJob) -> tuple[Survey, JobView, OwnerAddress | None]:
    """Wait until a job that has its directory and waits in a queue begins, or ends without beginning."""
    from holdfast.platforms.platform_registry import queue_of
    from holdfast.record.job_views import JobState

    queue = queue_of(platform.platform)
    assert queue is not None, "the job waits in it"
    while True:
        queue.wait(FIRST_PAUSE_S)
        again = located(view.id)
        if again[1].state is not JobState.QUEUED:
            return again


def _begun(job: str, platform: PlatformJob) -> tuple[Survey, JobView, OwnerAddress | None]:
    """Wait until a queued job begins. Raise `BadUsage` if it leaves the queue without beginning."""
    from holdfast.platforms.platform_registry import queue_of

    queue = queue_of(platform.platform)
    assert queue is not None, "the job waits in it"
    pause_s = FIRST_PAUSE_S
    while True:
        queue.wait(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        waits = in_queue(job)
        try:
            return located(job)
        except BadUsage:
            if not waits:
                raise
