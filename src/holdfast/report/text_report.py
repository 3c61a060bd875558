"""The full report for a person: how the job ended, why, the culprit, what to do, and the decisions before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from holdfast.model.check_results import ChecksTaken
from holdfast.model.decisions import AttemptRecord, Bound, JobReport, lost_by_attempt
from holdfast.model.exit_report import LEFT_RUNNING, Blame, Culprit, Evidence, ExitReport, Outcome, Rerun
from holdfast.model.human_format import duration, ranks, with_address
from holdfast.record.local_time import clock
from holdfast.record.report_file import next_command
from holdfast.report.terminal_text import Style, harmless, paint, wrapped

_LABEL = 11
_EVIDENCE_ITEMS = 8
_EVIDENCE_LINES = 12

_RERUN_WORDS = {
    Rerun.NOW: "trying again at once may help",
    Rerun.LATER: "trying again later may help",
    Rerun.ELSEWHERE: "trying again elsewhere may help",
    Rerun.NEVER: "trying again would end the same way",
    Rerun.UNKNOWN: "whether trying again helps is not known",
}


def render(report: JobReport, *, width: int = 100, colour: bool = False, parts: bool = False, home: str = "") -> str:
    """Return the report of the whole job. The text ends with a line end. `width`: columns. `home`: see `with_home`.

    `parts`: also show how each attempt's time was spent, as in `holdfast show`.
    """
    lines = [headline(report, colour=colour)]
    if report.outcome is not Outcome.SUCCEEDED:
        lines += _body(report.report, width, colour)
    for text in report.report.left_running:
        lines += entry("left", text, width, colour)
    if parts and report.attempts and report.attempts[-1].checks is not None:
        lines += check_lines(report.attempts[-1].checks, width, colour)
    if report.attempts and (parts or len(report.attempts) > 1 or report.outcome is not Outcome.SUCCEEDED):
        lines += attempt_lines(report.attempts, width=width, colour=colour, parts=parts)
    if report.outcome is Outcome.FAILED:
        lines += entry("next", with_home(report.report.hint or next_command(report), home), width, colour)
    return "\n".join(lines) + "\n"


def with_home(text: str, home: str) -> str:
    """Name the state directory in each command of `text` that looks the job up; an empty one changes nothing."""
    for verb in ("show", "logs") if home else ():
        text = text.replace(f"holdfast {verb} ", f"HOLDFAST_HOME={quote(home)} holdfast {verb} ")
    return text


def check_lines(taken: ChecksTaken, width: int, colour: bool) -> list[str]:
    """Return the state of the pre-checks, and a line for each check that did not pass without a warning."""
    passed = sum(check.state == "passed" for check in taken.checks)
    reused = ", of the attempt before" if taken.reused else ""
    count = f": {passed} of {len(taken.checks)} checks passed{reused}" if taken.checks else ""
    lines = entry("checks", f"{taken.state.value}{count}", width, colour)
    for check in taken.checks:
        if check.state != "passed":
            tries = f" (try {check.tries})" if check.tries > 1 else ""
            message = f": {check.message}" if check.message else ""
            lines += entry("", f"{check.name}: {check.state}{tries}{message}", width, colour)
    return lines


def headline(report: JobReport, *, colour: bool = False) -> str:
    """Return one line: the job, its outcome, the number of attempts and the duration."""
    style = {Outcome.SUCCEEDED: Style.GOOD, Outcome.FAILED: Style.BAD, Outcome.STOPPED: Style.WARN}[report.outcome]
    word = paint(report.outcome.value.upper(), style, colour)
    what = (
        f": {report.report.phrase} (exit code {report.report.code})" if report.outcome is not Outcome.SUCCEEDED else ""
    )
    took = ""
    if report.attempts:
        count = len(report.attempts)
        seconds = report.attempts[-1].ended_at - report.attempts[0].started_at
        took = f" after {count} attempt{'' if count == 1 else 's'}, {duration(seconds)}"
    return f"holdfast: job {report.job_id} ({harmless(report.name)}) {word}{what}{took}"


def attempt_lines(attempts: tuple[AttemptRecord, ...], *, width: int, colour: bool, parts: bool = False) -> list[str]:
    """Return a line for each attempt, and its decision with the reason below.

    `parts`: also show how the attempt's time was spent.
    """
    lines: list[str] = []
    before: AttemptRecord | None = None
    lost = lost_by_attempt(attempts)
    for record in attempts:
        seconds = duration(record.ended_at - record.started_at)
        report = record.report
        who = f", {_where(report.first)}" if report.first else ""
        step = f", step {record.step}" if record.step is not None else ""
        if again := lost.get(record.attempt):
            step += f" ({again} step{'' if again == 1 else 's'} lost)"
        summary = f"{record.attempt}: {clock(record.started_at)}, {seconds}{step}: {report.phrase}{who}"
        lines += entry("attempts" if not lines else "", summary, width, colour)
        if parts:
            lines += [" " * (_LABEL + 5) + line for line in bar(record.parts, width - _LABEL - 5)]
            back_s = way_back(before.parts, record.parts) if before is not None else None
            if back_s is not None:
                back = f"back {duration(back_s)} after the first sign of trouble"
                lines += wrapped(back, width, " " * (_LABEL + 5))
            if record.bound and (before is None or before.bound != record.bound):
                lines += wrapped(f"bound: {bound_in_words(record.bound)}", width, " " * (_LABEL + 5))
        before = record
        decision = record.decision
        told = decision.reason.startswith("restart ")  # the reason of a restart already names these facts
        notes = [] if told else [decision.kind.value]
        if decision.delay_s and not told:
            notes.append(f"after {duration(decision.delay_s)}")
        if decision.avoid:
            notes.append(f"avoiding {', '.join(decision.avoid)}")
        if decision.kind.value in ("restart", "replace") and not told:
            notes.append("charged to --max-restarts" if decision.charged else "not charged to --max-restarts")
        text = harmless(f"{', '.join(notes)}: {decision.reason}" if notes else decision.reason)
        lines += wrapped(text, width, " " * (_LABEL + 7), " " * (_LABEL + 5) + "→ ")
    return lines


#: Maximum number of bound workers that the report shows. The file report.json has more.
MOST_RANKS = 16


def bound_in_words(bound: tuple[Bound, ...]) -> str:
    """Return a text such as `rank 0 to CPUs 0-3 and gpu0; rank 1 to …`."""
    told = []
    for one in bound[:MOST_RANKS]:
        parts = [f"CPU{'s' if set(one.cpus) & set(',-') else ''} {one.cpus}"] if one.cpus else []
        if one.devices is not None:
            parts.append(", ".join(one.devices) or "no device")
        told.append(f"rank {one.rank} to {' and '.join(parts)}")
    more = f"; and {len(bound) - MOST_RANKS} more" if len(bound) > MOST_RANKS else ""
    return "; ".join(told) + more


def _body(report: ExitReport, width: int, colour: bool) -> list[str]:
    lines = entry("reason", report.reason, width, colour)
    if report.first:
        lines += entry("culprit", _culprit(report.first, report), width, colour)
    for other in report.also:
        lines += entry("or", _culprit(other, None), width, colour)
    if report.first and report.confidence < 0.9:
        lines += entry("", f"(this attribution is {report.confidence:.0%} sure)", width, colour)
    if report.blame is Blame.OPERATOR:
        lines += entry("blame", report.blame.value, width, colour)
    elif report.blame is not Blame.UNKNOWN or report.code:
        lines += entry("blame", f"{report.blame.value}; {_RERUN_WORDS[report.rerun]}", width, colour)
    if report.code:
        lines += entry("class", f"{report.phrase}: holdfast exits {report.code}", width, colour)
    if report.solution:
        lines += entry("solution", report.solution, width, colour, Style.STRONG)
    told = tuple(item for item in report.evidence if item.source != LEFT_RUNNING)
    lines += evidence_lines(told, width, colour)
    if report.collateral:
        count = len(set(report.collateral))
        verb = "is" if count == 1 else "are"
        followed = f"{ranks(report.collateral)} ended because of it and {verb} not the cause"
        lines += entry("others", followed, width, colour)
    return lines


def entry(
    label: str, text: str, width: int, colour: bool, style: Style | None = None, *, label_columns: int = _LABEL
) -> list[str]:
    """Return a labelled paragraph. An empty label continues the paragraph above."""
    indent = " " * (label_columns + 2)
    lines = wrapped(harmless(text), width, indent)
    if style is not None:
        lines = [indent + paint(line.removeprefix(indent), style, colour) for line in lines]
    lines[0] = f"  {paint(label, Style.FAINT, colour)}{' ' * (label_columns - len(label))}{lines[0][len(indent) :]}"
    return lines


def _where(culprit: Culprit) -> str:
    node = f" on {with_address(culprit.node, culprit.address)}" if culprit.node else ""
    return f"rank {culprit.rank}{node}"


def _culprit(culprit: Culprit, report: ExitReport | None) -> str:
    parts = [f"{culprit.role} {_where(culprit)}"]
    if culprit.pid is not None:
        parts.append(f"pid {culprit.pid}")
    if report is not None and report.original.how:
        parts.append(report.original.how)
    if culprit.at is not None:
        parts.append(f"at {clock(culprit.at)}")
    return ", ".join(parts)


def evidence_lines(
    evidence: tuple[Evidence, ...], width: int, colour: bool, *, label_columns: int = _LABEL
) -> list[str]:
    """Return the first items of evidence, each with its source and time."""
    lines: list[str] = []
    indent = " " * (label_columns + 4)
    for item in evidence[:_EVIDENCE_ITEMS]:
        when = f", {clock(item.at)}" if item.at is not None else ""
        source = harmless(item.source) or item.kind
        source += f" on {item.node}" if item.node else ""
        label = "evidence" if not lines else ""
        lines += entry(label, f"{source}{when}:", width, colour, label_columns=label_columns)
        text = harmless(item.text).splitlines() or [""]
        shown = text[-_EVIDENCE_LINES:]
        if len(shown) < len(text):
            lines.append(indent + f"… {len(text) - len(shown)} lines before these are in report.json")
        # Log lines are not wrapped, so that they can be searched for and compared.
        lines += [indent + paint("| ", Style.FAINT, colour) + line[:2000] for line in shown]
    if len(evidence) > _EVIDENCE_ITEMS:
        more = f"… {len(evidence) - _EVIDENCE_ITEMS} more in report.json"
        lines += entry("", more, width, colour, label_columns=label_columns)
    return lines


#: Part of an attempt's time → its character in the time bar, and its name in the legend; in order of time.
_LOOKS = {
    "backoff": ("·", "back-off"),
    "checking": ("░", "checks"),
    "preparing": ("▒", "prepare"),
    "first_output": ("▓", "go → first output"),
    "starting": ("▪", "starting"),
    "running": ("█", "running"),
    "detection": ("◌", "detection"),
    "draining": ("▚", "draining"),
    "decision": ("▞", "decision"),
}
#: Phases that contain the time to the first output, which the attempt's record also has as a part of its own.
_AFTER_GO = ("starting", "running", "detection", "draining")
_BAR = 30


def bar(parts: Mapping[str, float], width: int) -> list[str]:
    """Return the bar `▒▓▓███████▚` and its legend `▒ prepare 1.9 s, ▓ go → first output 3 s …`, on one line if both
    fit.

    Every bar has the same width, whether the attempt took 0.2 s or three days. Every part that took time has at least
    one mark in the bar, and its time is in the legend.
    """
    shown = in_a_row(parts)
    if not shown:
        return []
    marks = "".join(_look(name)[0] * count for name, count in zip(shown, _shares([*shown.values()]), strict=True))
    names = [f"{_look(name)[0]} {_look(name)[1]} {duration(seconds)}" for name, seconds in shown.items()]
    whole = f"{marks}  {', '.join(names)}"
    return [whole] if len(whole) <= width else [marks, *_filled(names, width)]


def in_a_row(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of an attempt's time that are above 0, in order of time, with their seconds.

    Subtract the time to the first output from the phases that contain it.
    """
    cut = {name: max(0.0, seconds) for name, seconds in parts.items()}
    left, before = cut.get("first_output", 0.0), 0.0
    for name in _AFTER_GO:
        taken = min(left, cut.get(name, 0.0))
        if taken > 0:
            cut[name] -= taken
            left -= taken
            before += taken
    cut["first_output"] = before
    order = [*_LOOKS, *(name for name in cut if name not in _LOOKS)]
    return {name: cut[name] for name in order if cut.get(name, 0.0) > 0}


def way_back(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the seconds from the first sign of trouble in one attempt to the first output of the next.

    None: the next attempt wrote no output.
    """
    if "first_output" not in after:
        return None
    trouble = sum(before.get(name, 0.0) for name in ("detection", "draining", "decision"))
    return trouble + sum(after.get(name, 0.0) for name in ("backoff", "checking", "preparing", "first_output"))


def _look(name: str) -> tuple[str, str]:
    return _LOOKS.get(name, ("▫", name))


def _shares(spans: Sequence[float]) -> list[int]:
    """Return how many marks of the bar each time span gets: at least one, and `_BAR` in total."""
    total = sum(spans)
    shares = [max(1, round(_BAR * span / total)) for span in spans]
    while sum(shares) != _BAR:
        widest = shares.index(max(shares))
        shares[widest] += 1 if sum(shares) < _BAR else -1
    return shares


def _filled(names: Sequence[str], width: int) -> list[str]:
    """Join the names into lines. A name is never broken over two lines."""
    lines = [names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) + 3 <= width:
            lines[-1] += f", {name}"
        else:
            lines[-1] += ","
            lines.append(name)
    return lines
