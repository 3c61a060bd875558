"""A report in the forms that other tools show: workflow commands of GitHub, and Markdown for a comment."""

from __future__ import annotations

from holdfast.model.exit_report import ExitReport
from holdfast.report.brief_report import render_exit
from holdfast.report.failure_place import FailurePlace
from holdfast.safe_text import one_line

#: GitHub shows this much of a message, and cuts a summary at 1 MiB.
_MOST_MESSAGE = 4000
_CELLS = str.maketrans(
    {"|": "\\|", "<": "&lt;", ">": "&gt;", "`": "'", "*": "\\*", "_": "\\_", "[": "\\[", "@": "@\u200b"}
)


def github_commands(report: ExitReport, scene: FailurePlace, file: str) -> str:
    """Return workflow commands: one error (a notice for a success) at the user's line, and the report as a group.

    `file`: the log that was read; it is named where no line of the user's code is known.
    """
    kind = "error" if report.code else "notice"
    frame = scene.frames[0] if scene.frames else None
    line = report.because.line
    where = {"file": frame.path, "line": str(frame.line)} if frame is not None else {}
    if not where and file:
        where = {"file": file, **({"line": str(line.number)} if line is not None and line.number else {})}
    properties = ",".join(f"{name}={_property(value)}" for name, value in {**where, "title": report.phrase}.items())
    message = one_line(f"{report.reason}. {report.solution}")[:_MOST_MESSAGE]
    text = "\n".join(_unlike_a_command(each) for each in render_exit(report, scene).splitlines())
    return f"::{kind} {properties}::{_data(message)}\n::group::holdfast explain\n{text}\n::endgroup::\n"


def _unlike_a_command(line: str) -> str:
    """Return a line that GitHub does not take for a command, whatever a log has put into it."""
    return line.replace("::", ": :").replace("##[", "# #[")


def markdown(report: ExitReport, scene: FailurePlace) -> str:
    """Return a report for a comment or a step's summary. What logs have written cannot be markup in it."""
    rows = [
        ("reason", report.reason), ("fault", report.blame.value), ("rerun", report.rerun.value),
        ("rank", report.first.words if report.first is not None else ""), ("fix", report.solution),
    ]  # fmt: skip
    text = render_exit(report, scene, width=120, why=True).rstrip()
    fence = "`" * max(3, 1 + max((len(run) for run in text.split() if set(run) == {"`"}), default=0))
    return "\n".join(
        [
            f"### {_cell(report.phrase)} (exit code {report.code})",
            "",
            "| | |",
            "| --- | --- |",
            *(f"| {name} | {_cell(value)} |" for name, value in rows if value),
            "",
            "<details><summary>the lines that show it</summary>",
            "",
            fence + "text",
            text.replace(fence, "'" * len(fence)),
            fence,
            "",
            "</details>",
            "",
        ]
    )


def _cell(text: str) -> str:
    return one_line(text).translate(_CELLS)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")
