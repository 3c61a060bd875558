"""The parts of a report that only `--verbose` and a running job show: checks, attempts with their time, evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from holdfast.model.check_results import ChecksTaken
from holdfast.model.decisions import AttemptRecord, Bound, DecisionKind, JobReport, lost_by_attempt
from holdfast.model.exit_report import Evidence, ExitReport, Outcome
from holdfast.model.human_format import duration
from holdfast.record.local_time import clock
from holdfast.report.terminal_text import Style, harmless, paint, wrapped

#: The width of a line's label in columns, without the two blanks before it.
LABEL = 9
_EVIDENCE_ITEMS = 8
_EVIDENCE_LINES = 12


def with_home(text: str, home: str) -> str:
    """Set HOLDFAST_HOME in each command in `text` that looks up the job. An empty `home` leaves the text as it is."""
    for verb in ("show", "logs") if home else ():
        text = text.replace(f"holdfast {verb} ", f"HOLDFAST_HOME={quote(home)} holdfast {verb} ")
    return text


def check_lines(taken: ChecksTaken, width: int, colour: bool) -> list[str]:
    """Return the state of the pre-checks, and a line for each check whose state is not `passed`."""
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


#: Kind of decision → its words in the report, if they differ from the kind's value.
_DECIDED = {DecisionKind.FAIL: "not restarted"}


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
        step = f", step {record.step}" if record.step is not None else ""
        if again := lost.get(record.attempt):
            step += f" ({again} step{'' if again == 1 else 's'} lost)"
        summary = f"{record.attempt}: {ended_as(report)}{step}, {seconds}, from {clock(record.started_at)}"
        lines += entry("attempts" if not lines else "", summary, width, colour)
        if parts:
            lines += [" " * (LABEL + 5) + line for line in bar(record.parts, width - LABEL - 5)]
            back_s = way_back(before.parts, record.parts) if before is not None else None
            if back_s is not None:
                back = f"back {duration(back_s)} after the first sign of trouble"
                lines += wrapped(back, width, " " * (LABEL + 5))
            if record.bound and (before is None or before.bound != record.bound):
                lines += wrapped(f"bound: {bound_in_words(record.bound)}", width, " " * (LABEL + 5))
        before = record
        decision = record.decision
        # The reason of a restart contains the kind, the delay and the charge, so do not show them again.
        told = decision.reason.startswith("restart ")
        notes = [] if told else [_DECIDED.get(decision.kind, decision.kind.value)]
        if decision.delay_s and not told:
            notes.append(f"after {duration(decision.delay_s)}")
        if decision.avoid:
            notes.append(f"avoiding {', '.join(decision.avoid)}")
        if decision.kind.value in ("restart", "replace") and not told:
            notes.append("charged to --max-restarts" if decision.charged else "not charged to --max-restarts")
        text = harmless(f"{', '.join(notes)}: {decision.reason}" if notes else decision.reason)
        lines += wrapped(text, width, " " * (LABEL + 7), " " * (LABEL + 5) + "→ ")
    return lines


#: Maximum number of bound workers that the report shows. The file report.json has more.
MOST_RANKS = 16


def bound_in_words(bound: tuple[Bound, ...]) -> str:
    """Describe which CPUs and devices the ranks are bound to: `rank 0 to CPUs 0-3 and gpu0; rank 1 to …`."""
    told = []
    for one in bound[:MOST_RANKS]:
        parts = [f"CPU{'s' if set(one.cpus) & set(',-') else ''} {one.cpus}"] if one.cpus else []
        if one.devices is not None:
            parts.append(", ".join(one.devices) or "no device")
        told.append(f"rank {one.rank} to {' and '.join(parts)}")
    more = f"; and {len(bound) - MOST_RANKS} more" if len(bound) > MOST_RANKS else ""
    return "; ".join(told) + more


def entry(label: str, text: str, width: int, colour: bool, style: Style | None = None) -> list[str]:
    """Return the lines of a paragraph, with a label before the first. Without a label the paragraph continues the
    previous one.
    """
    indent = " " * (LABEL + 2)
    lines = wrapped(harmless(text), width, indent)
    if style is not None:
        lines = [indent + paint(line.removeprefix(indent), style, colour) for line in lines]
    lines[0] = f"  {paint(label, Style.FAINT, colour)}{' ' * (LABEL - len(label))}{lines[0][len(indent) :]}"
    return lines


def ended_as(report: ExitReport) -> str:
    """Return the class of an attempt's end and the rank that caused it, for the attempt's line in the report."""
    first = report.first
    what = f"{report.phrase}, rank {first.rank}" if first else report.phrase
    return f"{what} on {first.node}" if first and first.node else what


def evidence_lines(evidence: tuple[Evidence, ...], width: int, colour: bool) -> list[str]:
    """Return lines with the first items of evidence, each with its source and time."""
    lines: list[str] = []
    indent = " " * (LABEL + 4)
    for item in evidence[:_EVIDENCE_ITEMS]:
        when = f", {clock(item.at)}" if item.at is not None else ""
        source = harmless(item.source) or item.kind
        source += f" on {item.node}" if item.node else ""
        label = "evidence" if not lines else ""
        lines += entry(label, f"{source}{when}:", width, colour)
        text = harmless(item.text).splitlines() or [""]
        shown = text[-_EVIDENCE_LINES:]
        if len(shown) < len(text):
            lines.append(indent + f"… {len(text) - len(shown)} lines before these are in report.json")
        # Log lines are not wrapped, so that they can be searched for and compared.
        lines += [indent + paint("| ", Style.FAINT, colour) + line[:2000] for line in shown]
    if len(evidence) > _EVIDENCE_ITEMS:
        more = f"… {len(evidence) - _EVIDENCE_ITEMS} more in report.json"
        lines += entry("", more, width, colour)
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
#: Phases that contain the time to the first output. The attempt's record has that time as a separate part too.
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
    """Return the parts of an attempt's time with their seconds, in order of time, without parts of 0 seconds.

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

    None: that attempt wrote no output.
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
