"""Parts that the verbs share: options made from the table of settings, the state directory, and the list of jobs."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from holdfast.cli.output.printing import say
from holdfast.errors import BadUsage, HoldfastError
from holdfast.file_modes import open_to_others
from holdfast.record.state_directory import home_of

if TYPE_CHECKING:
    from holdfast.model.evidence import LostOwner
    from holdfast.model.exit_report import ExitReport
    from holdfast.record.job_views import JobView, Survey


def setting_options() -> list[click.Option]:
    """Return one click option for each setting.

    The values stay as the user typed them: `settings.resolve` validates them, and names their origin.
    """
    from holdfast.settings.settings_table import SETTINGS
    from holdfast.settings.value_kinds import ValueKind

    options = []
    for setting in SETTINGS:
        flag = setting.kind is ValueKind.FLAG
        long = f"--{setting.name}/--no-{setting.name}" if setting.no_option else f"--{setting.name}"
        default = f"  [default: {setting.number_shown}]" if setting.number_shown else ""
        options.append(
            click.Option(
                [setting.name.replace("-", "_"), long],
                is_flag=flag,
                default=None,
                multiple=setting.kind is ValueKind.FILES,
                metavar=None if flag else setting.metavar,
                help=setting.help + default,
            )
        )
    return options


P = ParamSpec("P")


def pipeable(verb: Callable[P, None]) -> Callable[P, None]:
    """Let the verb end without an error if the reader of its output ends early (`holdfast logs JOB | head`), because
    click would exit with status 1.
    """

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Discard buffered output, because flushing it at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    return run


def home() -> Path:
    """Return the state directory in this process's environment. Raise BadUsage if another user can write to it."""
    where = home_of(os.environ)
    if why := open_to_others(where):
        raise BadUsage(f"the state directory is not used: {why}", hint=f"ls -ld {where}")
    try:
        closed = where.is_dir() and not os.access(where, os.X_OK)
    except PermissionError:
        closed = True  # this user may not enter a parent directory
    if closed:
        raise BadUsage(f"the state directory {where} cannot be read: permission denied", hint=f"ls -ld {where}")
    return where


def utc_option(verb: Callable[P, None]) -> Callable[P, None]:
    """Add `--utc`, with which printed and typed times are in UTC instead of this machine's zone."""
    return click.option(
        "--utc",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_utc,
        help="Times in UTC instead of this machine's zone.",
    )(verb)


def _utc(context: click.Context, _: click.Parameter, given: bool) -> None:
    if not given and not _utc_is_set():
        return
    before = os.environ.get("TZ")

    def back() -> None:
        _zone(before)

    context.call_on_close(back)
    _zone("UTC")


def _utc_is_set() -> bool:
    """Return whether HOLDFAST_UTC or the key `utc` selects UTC.

    A wrong value of HOLDFAST_UTC is reported on stderr, and the verb continues. Mistakes in a file are not reported,
    because `holdfast config` does that.
    """
    from holdfast.settings.resolved_settings import resolve

    try:
        return bool(resolve({}, os.environ, home_of(os.environ)).flag("utc"))
    except HoldfastError as error:
        if "HOLDFAST_UTC" in error.message:
            say(f"{error.message}; times are in this machine's zone\n  try: {error.hint}")
        return False
    except OSError:
        return False


def _zone(name: str | None) -> None:
    """Set the time zone of this process; None selects the machine's zone."""
    if name is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = name
    time.tzset()


def zone_words() -> list[str]:
    """Return the option with which another machine prints times in UTC; "" if this process does not print
    times in UTC.
    """
    return ["--utc"] if os.environ.get("TZ") == "UTC" else []


def _end_left(job_id: str) -> frozenset[int]:
    from holdfast.main.run_guard import end_left  # imported here, because only a lost job needs it

    return end_left(job_id)


def _explain_lost(lost: LostOwner) -> ExitReport:
    from holdfast.main.run_guard import explain_lost  # imported here, because only a lost job needs it

    return explain_lost(lost)


def _in_queue(jobs: Sequence[JobView]) -> Mapping[str, str]:
    # imported here, because only a platform's job that looks lost needs it
    from holdfast.platforms.requeued_jobs import started_again

    return started_again(jobs)


def survey(dropped: Mapping[str, str] | None = None) -> Survey:
    """Return all jobs of the state directory. Report trouble with the journal and newly found lost jobs on stderr.

    `dropped`: see `reconcile`.
    """
    from holdfast.record.job_views import reconcile

    found = reconcile(home(), _explain_lost, end_left=_end_left, dropped=dropped, in_queue=_in_queue)
    if found.trouble:
        say(found.trouble)
    for report in found.newly_lost:
        say(f"job {report.job_id} ({report.name}): {report.report.reason}")
    return found
