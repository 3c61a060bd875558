"""Runs `holdfast explain`. It reads the options without click, whose import would take as long as the explanation."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model.exit_report import ExitReport

_VALUED = {"--exit-code": "exit_code", "--signal": "signal_name", "--exits": "exits"}


def read_explain_options(args: Sequence[str]) -> dict[str, Any] | None:
    """Return the options of `holdfast explain` as click would parse them.

    None: the options are not simple, so click must parse them and report mistakes.
    """
    given: dict[str, Any] = {"exit_code": None, "signal_name": None, "as_json": False, "why": False}
    exits: list[str] = []
    files: list[str] = []
    rest = list(args)[::-1]
    while rest:
        word, equals, value = rest.pop().partition("=")
        if not word.startswith("-") or word == "-":
            files.append(word + equals + value)
        elif word == "--json" and not equals:
            given["as_json"] = True
        elif word == "--why" and not equals:
            given["why"] = True
        elif word in _VALUED and (equals or rest):
            text = value if equals else rest.pop()
            if word == "--exits":
                exits.append(text)
            elif word == "--signal":
                given["signal_name"] = text
            elif text.isascii() and text.removeprefix("-").isdigit():
                given["exit_code"] = int(text)
            else:
                return None
        else:
            return None
    return {**given, "files": tuple(files), "exits": tuple(exits)}


def explaining(
    files: Sequence[str],
    exit_code: int | None,
    signal_name: str | None,
    as_json: bool,
    exits: Sequence[str],
    *,
    why: bool = False,
) -> None:
    """Print the report. Raise `BadUsage` for options that contradict each other.

    `files`: paths of logs, or the name of a job. `exit_code`, `signal_name`: how the program ended. `exits`: a file of
    the user's catalogue rows.
    """
    from holdfast.cli.output.printing import say
    from holdfast.errors import BadUsage
    from holdfast.node.explain_files import ended_by, explain_files

    of_job = not exits and exit_code is None and signal_name is None
    if of_job and (len(files) == 1 or (not files and _silent_input())) and (known := _job(files)) is not None:
        _tell(known[0], as_json, known[1], why=why)
        return
    if not files and sys.stdin.isatty():
        raise BadUsage("no log was given: name files, or `-` for standard input", hint="holdfast explain job.log")
    exit_code, number = ended_by(exit_code, signal_name)
    catalogue = None
    if exits:
        from holdfast.node.explain_files import catalogue_with

        catalogue, warnings = catalogue_with(exits)
        for warning in warnings:
            say(warning)
    report = explain_files(files, exit_code=exit_code, signal=number, catalogue=catalogue)
    _tell(report, as_json, why=why)


def _silent_input() -> bool:
    """Return whether standard input is a terminal or /dev/null, so that it contains no log."""
    try:
        return stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)
    except OSError:
        return False  # stdin is not an open file


def _job(files: Sequence[str]) -> tuple[ExitReport, Path] | None:
    """Return the report of the job that `files` names, and the directory of its logs. Without a name, use the last job.

    Return None if the user means a log file. Raise `BadUsage` if there is no such job or report.
    """
    word = files[0] if files else ""
    if word == "-" or os.path.lexists(word):
        return None
    from holdfast.cli.options.shared_options import survey
    from holdfast.errors import BadUsage
    from holdfast.record.job_directory import logs_of
    from holdfast.record.job_lookup import find
    from holdfast.record.job_views import detail

    found = survey()
    try:
        view = find(found, word)
    except BadUsage:
        if word and "/" not in word and "." not in word and found.jobs:
            raise BadUsage(
                f"`{word}` is neither a file nor a job: expected a log, or a job's id or name", hint="holdfast jobs"
            ) from None
        return None
    known = detail(found, view)
    if known.report is not None:
        return known.report.report, logs_of(found.home, view.id)
    if not known.attempts:
        raise BadUsage(
            f"job {view.id} ({view.name}) is {view.state.value}, and no attempt of it has ended yet",
            hint=f"holdfast show {view.id}",
        )
    return known.attempts[-1].report, logs_of(found.home, view.id)


def _tell(report: ExitReport, as_json: bool, logs: Path | None = None, *, why: bool = False) -> None:
    from holdfast.cli.output.printing import print_line

    if as_json:
        from holdfast.report.report_json import exit_text

        text = exit_text(report)
    else:
        import shutil

        from holdfast.explain.text.secret_filter import without_secrets
        from holdfast.report.brief_report import render_exit
        from holdfast.report.failure_place import scene_of

        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        scene = without_secrets(scene_of(report, logs))
        text = render_exit(report, scene, width=width, colour=sys.stdout.isatty(), why=why)
    print_line(text, nl=False)
