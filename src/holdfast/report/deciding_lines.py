"""The lines of a report that say why this class: the rule, the row, the wording, the line, and the rivals."""

from __future__ import annotations

from holdfast.model.exit_report import DecidingLine, ExitReport
from holdfast.report.text_report import entry
from holdfast.safe_text import one_line

#: Maximum number of characters shown of a quoted line.
_MOST_QUOTED = 200


def deciding_lines(report: ExitReport, width: int, colour: bool) -> list[str]:
    """Return lines with what decided the report, and the two best other causes with what decided against them.

    They are empty for a report of a version that recorded nothing of this.
    """
    because = report.because
    if not because.rule:
        return []
    what = f"{one_line(because.row)} by the rule `{one_line(because.rule)}`"
    if because.wording:
        what += f", wording {one_line(because.wording)}"
    if report.code:
        what += f", confidence {report.confidence:.2f}"
    lines = entry("why", what, width, colour)
    if because.line is not None:
        lines += entry("", _quoted(because.line), width, colour)
    for rival in because.rivals:
        wording = f" (wording {one_line(rival.wording)})" if rival.wording else ""
        text = f"{one_line(rival.row)}{wording}: {one_line(rival.against)}"
        lines += entry("not", text, width, colour)
        lines += entry("", _quoted(rival.line), width, colour)
    if not because.rivals and because.line is not None:
        lines += entry("not", "no line of another class was found", width, colour)
    return lines


def _quoted(line: DecidingLine) -> str:
    text = one_line(line.text)
    text = text if len(text) <= _MOST_QUOTED else text[:_MOST_QUOTED] + " …"
    place = f"{one_line(line.source)}:{line.number}" if line.number else one_line(line.source)
    return f"{place}: {text}" if place else text
