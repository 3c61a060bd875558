"""`holdfast show JOB`: one job, its attempts, their causes and decisions."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from holdfast.errors import BadUsage, HoldfastError
from holdfast.show.cli._elsewhere import is_elsewhere, located, run_verb
from holdfast.show.cli._options import pipeable, say
from holdfast.show.cli._out import tell
from holdfast.show.cli._queue import in_queue, told

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model.checks import ChecksTaken
    from holdfast.record.views import JobDetail


@click.command()
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@pipeable
def command(job: str, as_json: bool) -> None:
    """Show one job: attempts, causes, decisions. JOB is an id, or a name (the newest of that name)."""
    from holdfast.record.views import detail
    from holdfast.show.report import render
    from holdfast.show.report_json import pretty, to_json_object
    from holdfast.show.terminal import columns, wants_colour

    try:
        found, view, note = located(job)
    except BadUsage:
        if not (queued := in_queue(job)):
            raise
        tell(pretty({"queued": queued}) if as_json else "\n".join(told(each) for each in queued))
        return
    if note is not None and is_elsewhere(view):
        from holdfast.loop.nodes.operator import Verb
        from holdfast.record.owner_lock import LOCK_NAME

        try:
            tell(run_verb(note, found.home, Verb.SHOW, ["--json"] if as_json else []), nl=False)
            return
        except HoldfastError as error:
            if not (found.home / "jobs" / view.id / LOCK_NAME).exists():
                raise
            say(str(error))  # the owner shares this state directory: what it last wrote down is here
    known = detail(found, view)
    if as_json:
        if known.report is not None:
            value = {**to_json_object(known.report), "state": known.view.state.value, "platform": known.view.platform}
        else:
            value = _unfinished(found.home, known)
        tell(pretty(value))
        return
    width, colour = columns(os.environ), wants_colour(sys.stdout, os.environ)
    if known.report is not None:
        tell(render(known.report, width=width, colour=colour, parts=True) + _of_platform(known), nl=False)
        return
    tell(_still(found.home, known, width, colour), nl=False)


def _unfinished(home: Path, known: JobDetail) -> dict[str, object]:
    """The same keys as a report has; those that only an end can fill are null."""
    from holdfast.model.decisions import JobReport
    from holdfast.model.exits import Blame, ExitReport, Outcome, Rerun
    from holdfast.record.report_file import checks_object
    from holdfast.show.report_json import to_json_object

    nothing = ExitReport(code=0, phrase="", blame=Blame.UNKNOWN, rerun=Rerun.UNKNOWN, reason="", solution="")
    view = known.view
    whole = to_json_object(
        JobReport(job_id=view.id, name=view.name, outcome=Outcome.SUCCEEDED, report=nothing, attempts=known.attempts)
    )
    kept = {"schema", "job", "attempts"}
    value = {key: (item if key in kept else None) for key, item in whole.items()}
    more = {"state": view.state.value, "platform": view.platform, "checks": checks_object(_round(home, known))}
    return {**value, **more}


def _of_platform(known: JobDetail) -> str:
    """What the platform calls it, where one has started it."""
    from holdfast.show.terminal import harmless

    platform = known.view.platform
    return "" if platform is None else f"  {harmless(platform.platform):<9}  {harmless(platform.id)}\n"


def _round(home: Path, known: JobDetail) -> ChecksTaken:
    """The checks of a job without an end. Its first moment, before any is noted, is CHECKING too."""
    from holdfast.model.checks import ChecksTaken, CheckState
    from holdfast.record.checks_seen import last_round

    return last_round(home, known.view.id) or ChecksTaken(state=CheckState.CHECKING)


def _still(home: Path, known: JobDetail, width: int, colour: bool) -> str:
    """A job without an end: what its supervisor last wrote down."""
    import time

    from holdfast.model.in_words import duration
    from holdfast.record.local_time import clock
    from holdfast.record.loss import attempt_of, last_known
    from holdfast.record.views import JobState, events
    from holdfast.show.report import attempt_lines, check_lines
    from holdfast.show.terminal import Style, harmless, paint

    view = known.view
    history = list(events(home, view.id))
    attempt = max((attempt_of(event) for _, event in history), default=0)
    state = paint(view.state.value.upper(), Style.STRONG, colour)
    since = f"since {clock(view.created)} ({duration(time.time() - view.created)})"
    lines = [f"holdfast: job {view.id} ({harmless(view.name)}) {state} {since}, pid {view.pid} on {view.host}"]
    if history:
        lines.append(f"  now        {last_known(history, attempt)} (last word at {clock(history[-1][0])})")
    lines += check_lines(_round(home, known), width, colour)
    lines += attempt_lines(known.attempts, width=width, colour=colour, parts=True)
    if view.state is JobState.RUNNING:
        lines.append(f"  logs       holdfast logs {view.id} --follow")
        lines.append(f"  to stop    holdfast stop {view.id} --reason TEXT")
    elif view.state is JobState.QUEUED:
        lines.append(f"  queued     {harmless(view.queued)}")
        lines.append(f"  next       attempt {len(known.attempts) + 1}, when its platform starts it again")
        lines.append(f"  to stop    holdfast stop {view.id} --reason TEXT")
    else:
        lines.append(f"  note       whether it still runs can only be seen on {view.host}")
    return "\n".join(lines) + "\n" + _of_platform(known)
