"""Runs `holdfast explain`. It reads the options without click, whose import would take as long as the explanation."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model.exit_report import ExitReport
    from holdfast.node.log_source import NamedLog
    from holdfast.platforms.program_output import PrintedLog
    from holdfast.report.failure_place import FailurePlace

_VALUED = {"--exit-code": "exit_code", "--signal": "signal_name", "--exits": "exits"}


def read_explain_options(args: Sequence[str]) -> dict[str, Any] | None:
    """Return the options of `holdfast explain` as click would parse them.

    None: the options are not simple, so click must parse them and report mistakes.
    """
    given: dict[str, Any] = {"exit_code": None, "signal_name": None, "as_json": False, "form": None, "why": False}
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
    form: str | None = None,
    why: bool = False,
) -> None:
    """Print the report. Raise `BadUsage` for options that contradict each other.

    `files`: paths of logs, or the name of a job. `exit_code`, `signal_name`: how the program ended. `exits`: a file of
    the user's catalogue rows.
    """
    from holdfast.cli.output.printing import say
    from holdfast.errors import BadUsage
    from holdfast.node.explain_files import ended_by, explain_files

    if as_json and form not in (None, "json"):
        raise BadUsage(f"--json and --format {form} exclude each other: expected one", hint=f"--format {form}")
    form = "json" if as_json else form or "text"
    of_job = not exits and exit_code is None and signal_name is None
    if of_job and (len(files) == 1 or (not files and _silent_input())) and (known := _job(files)) is not None:
        _tell(known[0], form, known[1], why=why)
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
    read: list[str] = []
    report = explain_files(_read(files, read), exit_code=exit_code, signal=number, catalogue=catalogue)
    if list(files) not in ([], read):
        of = ", ".join(files)
        say(f"read {len(read)} log{'' if len(read) == 1 else 's'} of {of}: {_few(read)}")
    _tell(report, form, why=why)


def _read(words: Sequence[str], read: list[str]) -> Iterator[str | NamedLog]:
    """Yield the logs that the words name, and add the name of each to `read`."""
    from holdfast.node.log_source import NamedLog
    from holdfast.node.named_logs import logs_of

    for word in words:
        for log in (None if word == "-" else logs_of(word)) or _foreign(word) or (word,):
            read.append(log.name if isinstance(log, NamedLog) else log)
            yield log


def _foreign(word: str) -> Iterator[str | NamedLog] | None:
    """Return the logs of a job that holdfast did not start; None: the word names none."""
    if "/" not in word and ":" not in word:
        return None
    from holdfast.platforms.platform_registry import foreign_logs

    found = foreign_logs(word)
    return _named(found) if found is not None else None


def _named(found: Iterator[str | PrintedLog]) -> Iterator[str | NamedLog]:
    import io
    import time

    from holdfast.node.log_source import NamedLog

    for log in found:
        if isinstance(log, str):
            yield log
        else:
            data = log.text.encode()
            yield NamedLog(name=log.name, opened=partial(io.BytesIO, data), written_at=time.time())


_MOST_NAMED = 4


def _few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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
    if (
        word == "-"
        or os.path.lexists(word)
        or "*" in word
        or "?" in word
        or word.startswith("ray:")
        or _foreign(word) is not None
    ):
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


def _tell(report: ExitReport, form: str, logs: Path | None = None, *, why: bool = False) -> None:
    from holdfast.cli.output.printing import print_line

    if form == "json":
        from holdfast.report.report_json import exit_text

        text = exit_text(report)
    else:
        import shutil

        from holdfast.explain.text.secret_filter import without_secrets
        from holdfast.report.brief_report import render_exit
        from holdfast.report.failure_place import scene_of

        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        scene = without_secrets(scene_of(report, logs))
        if form == "text":
            text = render_exit(report, scene, width=width, colour=sys.stdout.isatty(), why=why)
        else:
            text = _in_other_form(report, scene, form)
    print_line(text, nl=False)


def _in_other_form(report: ExitReport, scene: FailurePlace, form: str) -> str:
    from holdfast.report.report_formats import github_commands, markdown

    if form == "markdown":
        return markdown(report, scene)
    from pathlib import Path

    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        from holdfast.errors import BadUsage

        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(markdown(report, scene))
        except OSError as error:
            raise BadUsage(f"$GITHUB_STEP_SUMMARY: {summary} cannot be written: {error.strerror}") from None
    line = report.because.line
    return github_commands(report, scene, line.source if line is not None else "")
