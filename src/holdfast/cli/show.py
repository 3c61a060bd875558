"""`holdfast show JOB`: shows one job, its attempts, their causes and decisions."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.cluster_jobs import in_cluster, of_a_cluster
from holdfast.cli.job_access.queued_jobs import in_queue, queued_job_text
from holdfast.cli.job_access.remote_owner import is_elsewhere, located, run_verb
from holdfast.cli.options.completion_values import jobs
from holdfast.cli.options.shared_options import pipeable, utc_option, zone_words
from holdfast.cli.output.html_file import refuse_early, write_page
from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage, HoldfastError
from holdfast.record.job_directory import is_stand_in, logs_of
from holdfast.record.job_lookup import LAST

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model.check_results import ChecksTaken
    from holdfast.model.decisions import JobReport
    from holdfast.record.job_views import JobDetail, JobView


@click.command()
@click.argument("job", required=False, default=LAST, shell_complete=jobs)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option(
    "--html", "page", metavar="FILE", help="Write an HTML page about the job to FILE, for a ticket; `-`: stdout."
)
@click.option("--verbose", "-v", is_flag=True, help="Print all evidence, and each attempt with its decision.")
@of_a_cluster()
@pipeable
def command(
    job: str, as_json: bool, page: str | None, verbose: bool, platform: str | None, namespace: str | None
) -> None:
    """Show one job: attempts, causes, decisions. JOB is an id or its beginning, or a name; without it, the last job."""
    if page is not None:
        refuse_early(page, as_json=as_json, in_cluster=in_cluster(platform, namespace, job) is not None)
    if (cluster := in_cluster(platform, namespace, job)) is not None:
        from holdfast.cli.job_access.cluster_jobs import show

        show(cluster, namespace, job, as_json, verbose)
        return
    from holdfast.record.job_views import detail
    from holdfast.report.report_json import pretty, to_json_object
    from holdfast.report.terminal_text import columns, wants_colour

    try:
        found, view, note = located(job)
    except BadUsage:
        if page is not None or not (queued := in_queue(job)):
            raise
        print_line(pretty({"queued": queued}) if as_json else "\n".join(queued_job_text(each) for each in queued))
        return
    if note is not None and is_elsewhere(view):
        from holdfast.owner.nodes.operator_client import Verb
        from holdfast.record.owner_lock import LOCK_NAME

        if page is not None and not (found.home / "jobs" / view.id / LOCK_NAME).exists():
            raise BadUsage(
                f"job {view.id}: its page is made from its journal, which is on {view.host or note.owner}",
                hint=f"holdfast show {view.id} --html FILE   (on {view.host or note.owner})",
            )
        try:
            if page is not None:
                raise HoldfastError("the page has what the owner last wrote down here")
            words = [*(["--json"] if as_json else []), *(["--verbose"] if verbose else []), *zone_words()]
            print_line(run_verb(note, found.home, Verb.SHOW, words), nl=False)
            return
        except HoldfastError as error:
            if not (found.home / "jobs" / view.id / LOCK_NAME).exists():
                raise
            # Ignore the error: this machine shares the state directory, which has the last state that the owner
            # recorded.
            say(str(error))
    known = detail(found, view)
    if as_json or page is not None:
        if known.report is not None:
            value = {**to_json_object(known.report), "state": known.view.state.value, "platform": known.view.platform}
        else:
            value = _unfinished(found.home, known)
        if page is not None:
            write_page(found.home, known, pretty(value), page)
        else:
            print_line(pretty(value))
        return
    width, colour = columns(os.environ), wants_colour(sys.stdout, os.environ)
    if known.report is not None:
        text = _ended(found.home, known.report, width, colour, verbose)
        print_line(text + _of_platform(known), nl=False)
        return
    print_line(_still(found.home, known, width, colour), nl=False)


def _ended(home: Path, report: JobReport, width: int, colour: bool, verbose: bool) -> str:
    from holdfast.explain.text.secret_filter import without_secrets
    from holdfast.report.brief_report import render_brief
    from holdfast.report.failure_place import scene_of

    scene = without_secrets(scene_of(report.report, logs_of(home, report.job_id)))
    typed = str(home) if is_stand_in(home, os.environ) else ""
    return render_brief(report, scene, width=width, colour=colour, verbose=verbose, home=typed)


def _unfinished(home: Path, known: JobDetail) -> dict[str, object]:
    """Return an object with the keys of a report for a job that has not ended.

    Keys whose values are only known at the job's end are null.
    """
    from holdfast.model.decisions import JobReport
    from holdfast.model.exit_report import Blame, ExitReport, Outcome, Rerun
    from holdfast.node.attempt_progress import progress_of
    from holdfast.record.report_file import checks_object
    from holdfast.report.report_json import to_json_object

    nothing = ExitReport(code=0, phrase="", blame=Blame.UNKNOWN, rerun=Rerun.UNKNOWN, reason="", solution="")
    view = known.view
    whole = to_json_object(
        JobReport(job_id=view.id, name=view.name, outcome=Outcome.SUCCEEDED, report=nothing, attempts=known.attempts)
    )
    kept = {"schema", "job", "attempts"}
    value = {key: (item if key in kept else None) for key, item in whole.items()}
    more = {"state": view.state.value, "platform": view.platform, "checks": checks_object(_round(home, known))}
    return {**value, **more, "progress": progress_of(home, view)}


def _of_platform(known: JobDetail) -> str:
    """Return a line with the platform and its id of the job; "" if no platform has started the job, or if the platform
    uses the same id.
    """
    from holdfast.report.terminal_text import harmless

    platform = known.view.platform
    if platform is None or platform.id == known.view.id:
        return ""
    return f"  {harmless(platform.platform):<9}  {harmless(platform.id)}\n"


_MOST_CONFIG_BYTES = 1 << 20
#: Maximum number of workers that the output names as reachable by ssh.
_HOSTS = 4


def _entry(home: Path, job: str) -> list[str]:
    """Return a line with the ssh command for a worker; "" if the job has no sshd or this user may not read the job's
    keys.
    """
    from shlex import quote

    from holdfast.record.job_directory import SSH_FOLDER
    from holdfast.record.state_directory import job_dir
    from holdfast.report.terminal_text import harmless
    from holdfast.safe_files import read_file

    directory = job_dir(home, job)
    for config in (directory / SSH_FOLDER / "config", *sorted(directory.glob(f"nodes/*/{SSH_FOLDER}/config"))):
        try:
            text = read_file(config, _MOST_CONFIG_BYTES, cut=True).decode(errors="replace")
        except OSError:
            continue  # no sshd on this node, or the file belongs to another user
        hosts = [line.removeprefix("Host ") for line in text.splitlines() if line.startswith("Host ")]
        workers = [harmless(host) for host in hosts if host != "*"]
        if workers:
            named = ", ".join(workers[1:_HOSTS]) + (f" and {len(workers) - _HOSTS} more" * (len(workers) > _HOSTS))
            also = f"  (also {named})" if named else ""
            return [f"  to enter ssh -F {quote(str(config))} {workers[0]}{also}"]
    return []


def _round(home: Path, known: JobDetail) -> ChecksTaken:
    """Return the pre-checks of a job that has not ended.

    The state is CHECKING until the first round of checks is recorded.
    """
    from holdfast.model.check_results import ChecksTaken, CheckState
    from holdfast.record.recorded_checks import last_round

    return last_round(home, known.view.id) or ChecksTaken(state=CheckState.CHECKING)


def _why_queued(view: JobView) -> str:
    """Return why a job that has not begun waits, from its platform's queue."""
    from holdfast.platforms.job_queue import QueueUnknown
    from holdfast.platforms.platform_registry import queue_of

    queue = queue_of(view.platform.platform) if view.platform is not None else None
    found = queue.entries() if queue is not None else {}
    if isinstance(found, QueueUnknown):
        return f"{view.queued} ({found.why})"
    entry = found.get(view.platform.id) if view.platform is not None else None
    return entry.reason if entry is not None and entry.reason else view.queued


def _still(home: Path, known: JobDetail, width: int, colour: bool) -> str:
    """Return the text about a job that has not ended, from the last state that its owner has recorded."""
    import time

    from holdfast.model.human_format import duration
    from holdfast.node.attempt_progress import progress_of
    from holdfast.record.job_views import JobState, events
    from holdfast.record.local_time import ago, clock
    from holdfast.record.lost_owner_report import attempt_of, last_known
    from holdfast.report.terminal_text import Style, harmless, paint
    from holdfast.report.text_report import attempt_lines, check_lines

    view, now = known.view, time.time()
    history = list(events(home, view.id))
    attempt = max((attempt_of(event) for _, event in history), default=0)
    state = paint(view.state.value.upper(), Style.STRONG, colour)
    since = f"since {clock(view.created)} ({duration(now - view.created)})"
    begun = bool(history) or view.state is not JobState.QUEUED
    where = f", pid {view.pid} on {view.host}" if begun else ""
    lines = [f"holdfast: job {view.id} ({harmless(view.name)}) {state} {since}{where}"]
    if history:
        lines.append(f"  now      {last_known(history, attempt)} (last event {ago(history[-1][0], now)})")
    if (progress := progress_of(home, view)) is not None:
        lines.append(f"  progress {progress.words(now)}")
    if begun:
        lines += check_lines(_round(home, known), width, colour)
    lines += attempt_lines(known.attempts, width=width, colour=colour, parts=True)
    if view.state is JobState.RUNNING:
        lines.append(f"  logs     holdfast logs {view.id} --follow")
        lines.append(f"  to stop  holdfast stop {view.id} --reason TEXT")
        lines += _entry(home, view.id)
    elif view.state is JobState.QUEUED:
        when = "when its platform starts it again" if begun else "when its turn comes"
        lines.append(f"  queued   {harmless(view.queued if begun else _why_queued(view))}")
        lines.append(f"  next     attempt {len(known.attempts) + 1}, {when}")
        lines.append(f"  to stop  holdfast stop {view.id} --reason TEXT")
    else:
        lines.append(f"  note     whether it still runs can only be seen on {view.host}")
    return "\n".join(lines) + "\n" + _of_platform(known)
