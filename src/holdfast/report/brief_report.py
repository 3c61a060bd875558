"""The report that a run prints at its end: exception, place, class, fix, log, other ranks, next command.

`--verbose` adds what decided (`deciding_lines`), evidence, checks and the attempts with their time, which `text_report`
prints; all other lines are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from posixpath import dirname

from msgspec.structs import replace

from holdfast.lazy_pattern import Lazy
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.exit_report import (
    LEFT_RUNNING,
    Blame,
    Evidence,
    EvidenceKind,
    ExitReport,
    Outcome,
    Rerun,
    SourceLines,
)
from holdfast.model.human_format import duration, linked, ranks, with_address
from holdfast.model.phrases import Phrase
from holdfast.record.local_time import clock
from holdfast.record.report_file import next_command
from holdfast.report.deciding_lines import deciding_lines
from holdfast.report.failure_place import FailurePlace, UserFrame, source_of
from holdfast.report.fix_words import fix_of
from holdfast.report.terminal_text import Style, paint, wrapped
from holdfast.report.text_report import (
    LABEL,
    attempt_lines,
    check_lines,
    ended_as,
    entry,
    evidence_lines,
    headline,
    with_home,
)
from holdfast.safe_text import harmless, one_line

#: The role of a job that names none. The report omits this role, because readers know that a rank is a worker.
_USUAL_ROLE = "worker"
_WHO = Lazy(r"(?:worker )?rank \d+(?: on \S+)?: ")
#: Maximum number of characters shown of an exception's text. The log has the rest.
_MOST_SAID = 400
_MOST_SOURCE = 100
#: Maximum number of lines with messages of the platform and the kernel.
_MOST_SEEN = 3
_SEEN = (EvidenceKind.PLATFORM, EvidenceKind.KERNEL, EvidenceKind.FAULT, EvidenceKind.MEMORY)
#: Maximum number of groups of equal attempts that are shown.
_MOST_ATTEMPTS = 6

#: A report with less confidence says "likely".
LIKELY = 0.5
_ONLY_LOGS = "only_logs"

_FAULT = {
    Blame.WORKLOAD: "the program's fault",
    Blame.HARDWARE: "the hardware's fault",
    Blame.NETWORK: "the network's fault",
    Blame.STORAGE: "the storage's fault",
    Blame.PLATFORM: "the platform's fault",
    Blame.EXTERNAL: "the fault of an external service",
    Blame.OPERATOR: "an operator's request",
    Blame.UNKNOWN: "fault unknown",
}
_RERUN = {
    Rerun.NOW: "another run may help",
    Rerun.LATER: "another run may help later",
    Rerun.ELSEWHERE: "another run may help elsewhere",
    Rerun.NEVER: "another run would fail again",
    Rerun.UNKNOWN: "whether another run helps is unknown",
}


def render_brief(
    report: JobReport,
    scene: FailurePlace,
    *,
    width: int = 100,
    colour: bool = False,
    verbose: bool = False,
    home: str = "",
    retyped: Callable[[str], str] = str,
) -> str:
    """Return the job's report, in about seven lines without `verbose`. It ends with a line end.

    `scene`: the place of the failure in the job's last report. `width`: columns. `verbose`: add all evidence, the
    checks, and each attempt with its time and its decision. `home`: see `with_home`.
    `retyped`: makes a command of the job's machine one that can be typed here.
    """
    if report.outcome is Outcome.SUCCEEDED:
        lines = [headline(report, colour=colour), *_left(report.report, width, colour)]
        attempts = _in_full(report, width, colour) if verbose else _attempts(report.attempts, width, colour)
        return "\n".join([*lines, *attempts]) + "\n"
    last = report.report
    lines = [*_head(report, scene, width, colour), *_causes(last, width, colour), *_who(report, width)]
    lines += _where(scene.frames, width, colour)
    lines += _reason(last, scene, width, colour)
    record = report.attempts[-1] if report.attempts else None
    decision = record.decision if record is not None and _ends(record, last) else None
    lines += _seen(last, width, colour)
    lines += entry("class", " · ".join(_class(last, decision)), width, colour)
    if fix := fix_of(last, scene, report.job_id):
        fix = _COMMAND.sub(lambda found: f"`{retyped(found[1])}`", with_home(fix, home))
        lines += entry("fix", fix, width, colour, Style.STRONG)
    lines += _logs(scene, width, colour)
    if last.collateral:
        lines += entry("others", _others(last), width, colour)
    lines += _left(last, width, colour)
    if verbose:
        if (source := source_of(last, scene)) is not None:
            lines += entry("source", "as it was when the attempt ended:", width, colour)
            lines += [" " * (LABEL + 4) + line for line in numbered(source)]
        lines += deciding_lines(last, width, colour)
        lines += evidence_lines(_evidence(last), width, colour)
        lines += _in_full(report, width, colour)
    else:
        lines += _attempts(report.attempts, width, colour, whole=record is None or _ends(record, last))
    if report.outcome is Outcome.FAILED:
        lines += _next(
            [retyped(with_home(each, home)) for each in _commands(report, scene, verbose=verbose)], width, colour
        )
    return "\n".join(lines) + "\n"


#: A command of holdfast in backticks.
_COMMAND = Lazy(r"`((?:HOLDFAST_HOME=\S+ )?holdfast [^`\n]+)`")
#: More columns than any line of a report has.
_UNBROKEN = 1 << 20


def report_entries(report: JobReport, scene: FailurePlace) -> tuple[tuple[str, str], ...]:
    """Return the lines of `render_brief` below the headline as (label, text), in the terminal's words and order.

    The line about the culprit has no label. The attempts and the commands to type next are left out, and so is the
    failing source line if `source_of` has it with those around it.
    """
    if source_of(report.report, scene) is not None:
        scene = replace(scene, frames=(replace(scene.frames[0], source=""), *scene.frames[1:]))
    found: list[tuple[str, str]] = []
    for line in render_brief(report, scene, width=_UNBROKEN).splitlines()[1:]:
        begin, text = line[: LABEL + 2], line[LABEL + 2 :]
        if begin.isspace() and found:
            found[-1] = found[-1][0], f"{found[-1][1]}\n{text}"
        elif begin.startswith("    "):
            found.append(("", line.strip()))
        else:
            found.append((begin.strip(), text))
    return tuple((label, text) for label, text in found if label not in ("attempts", "next"))


def _left(report: ExitReport, width: int, colour: bool) -> list[str]:
    return [line for text in report.left_running for line in entry("left", text, width, colour)]


def render_exit(
    report: ExitReport, scene: FailurePlace, *, width: int = 100, colour: bool = False, why: bool = False
) -> str:
    """Return the explanation of one exit, as `holdfast explain` prints it: a job's report, but with the evidence.

    `why`: add the rule, the row, the wording, the line and the rivals.
    """
    style = Style.GOOD if report.code == 0 else Style.WARN if report.blame is Blame.OPERATOR else Style.BAD
    what = one_line(scene.said) or _without_who(report.reason)
    lines = _headed("", _phrase(report), what, width, style, colour)
    lines += _causes(report, width, colour)
    lines += _packed(_culprit(report, 0), width)
    lines += _where(scene.frames, width, colour)
    lines += _reason(report, scene, width, colour)
    if report.code:
        lines += entry("class", " · ".join(_class(report, None)), width, colour)
    if fix := fix_of(report, scene):
        lines += entry("fix", fix, width, colour, Style.STRONG)
    if why:
        lines += deciding_lines(report, width, colour)
    # Leave out the evidence about holdfast's stop of the other ranks, because the line "others" below shows that stop.
    told = tuple(item for item in report.evidence if item.kind is not EvidenceKind.COLLATERAL)
    lines += evidence_lines(told, width, colour)
    lines += _logs(scene, width, colour)
    if report.collateral:
        lines += entry("others", _others(report), width, colour)
    if report.code:
        lines += _next([*([report.hint] if report.hint else []), f"holdfast exits {_page(report)}"], width, colour)
    elif report.hint:
        lines += _next([report.hint], width, colour)
    return "\n".join(lines) + "\n"


def _head(report: JobReport, scene: FailurePlace, width: int, colour: bool) -> list[str]:
    style = Style.BAD if report.outcome is Outcome.FAILED else Style.WARN
    what = one_line(scene.said) or _without_who(report.report.reason) or report.report.phrase
    begin = f"holdfast: job {report.job_id} ({one_line(report.name)}) "
    return _headed(begin, report.outcome.value.upper(), what, width, style, colour)


def _headed(begin: str, word: str, what: str, width: int, style: Style, colour: bool) -> list[str]:
    """Wrap the report's headline to `width` columns, with `word` in colour.

    `begin`, `what`: the text before and after the word. Colour codes would count as columns, so a placeholder of the
    same width stands for the word until the lines are wrapped.
    """
    if len(what) > _MOST_SAID:
        what = what[:_MOST_SAID] + " …"
    mark = "\0" * len(word)
    return [
        line.replace(mark, paint(word, style, colour)) for line in wrapped(f"{begin}{mark}: {what}", width, " " * 4, "")
    ]


def _causes(report: ExitReport, width: int, colour: bool) -> list[str]:
    """Return a line for each exception that led to the one that ended the program."""
    lines: list[str] = []
    for text in map(one_line, report.chain[1:]):
        label, _, rest = text.partition(" ")  # `label` is `because` or `while handling`
        lines += entry(label, rest if len(rest) <= _MOST_SAID else rest[:_MOST_SAID] + " …", width, colour)
    return lines


def _who(report: JobReport, width: int) -> list[str]:
    last = report.report
    parts = _culprit(last, report.attempts[-1].workers if report.attempts else 0)
    if report.attempts:
        count, begun, ended = len(report.attempts), report.attempts[0].started_at, report.attempts[-1].ended_at
        alike = " alike" if count > 1 and len({_alike(record) for record in report.attempts}) == 1 else ""
        parts.append(f"attempt {last.attempt}" if count == 1 else f"attempt {last.attempt} of {count}{alike}")
        parts.append(f"{duration(ended - begun)}, until {clock(ended)}")
    return _packed(parts, width)


def _culprit(report: ExitReport, world: int) -> list[str]:
    """Return parts of a line: the rank, the number of ranks, the node, the rank's exit and the confidence.

    `world`: the number of the job's ranks; 0: not known.
    """
    first, parts = report.first, []
    if first is not None:
        of = f" of {world}" if world > first.rank else ""
        role = "" if first.role == _USUAL_ROLE else f"{first.role} "
        who = f"{'likely ' if _of_rank(report) else ''}{role}rank {first.rank}{of}"
        if first.node:
            who += f" on {with_address(first.node, first.address)}"
        if report.original.how:
            who += f" ({report.original.how})"
        parts.append(who)
    parts += [f"or rank {other.rank} on {other.node}" for other in report.also[:3]]
    if first is not None and report.confidence < 0.9:
        parts.append(f"confidence {report.confidence:.0%}")
    return parts


def _of_rank(report: ExitReport) -> bool:
    """Return whether the report doubts who failed first, and not what failed: it rests on more than logs."""
    return report.confidence < LIKELY and report.first is not None and report.because.rule != _ONLY_LOGS


def _phrase(report: ExitReport) -> str:
    """Return the class; with `likely` before it if the report is more probably wrong than right about it."""
    doubtful = report.confidence < LIKELY and not _of_rank(report) and report.phrase != Phrase.UNEXPLAINED
    return f"likely {one_line(report.phrase)}" if doubtful else one_line(report.phrase)


def _packed(parts: Sequence[str], width: int) -> list[str]:
    """Put as many parts on each line as fit. A part is only broken over two lines if it is longer than a line."""
    lines: list[str] = []
    for part in map(one_line, parts):
        more = f"{lines[-1]} · {part}" if lines else ""
        if more and len(more) <= width:
            lines[-1] = more
        else:
            lines += wrapped(part, width, " " * 4)
    return lines


def _where(frames: Sequence[UserFrame], width: int, colour: bool) -> list[str]:
    """Return two report lines: the failing frame with its source code, and all its callers, the innermost first."""
    if not frames:
        return []
    place, *callers = frames
    folder = dirname(place.path)
    called = " ← ".join(
        f"{one_line(each.function)} ({one_line(_near(each.path, folder))}:{each.line})" for each in callers
    )
    lines = entry("where", _place(place, width), width, colour)
    return lines + (entry("", f"called by {called}", width, colour) if called else [])


def numbered(source: SourceLines) -> list[str]:
    """Return the source lines with their numbers. The failing one is marked with `>`."""
    wide = len(str(source.first + len(source.lines) - 1))
    return [
        f"{'>' if number == source.line else ' '} {number:{wide}} | {harmless(text)}"
        for number, text in enumerate(source.lines, source.first)
    ]


def _near(path: str, folder: str) -> str:
    """Return the path's file name if the file is in the folder named in the line above; else the path as it is."""
    return path.removeprefix(f"{folder}/") if folder and dirname(path) == folder else path


def _place(frame: UserFrame, width: int) -> str:
    source = one_line(frame.source)
    if len(source) > _MOST_SOURCE:
        source = source[:_MOST_SOURCE] + " …"
    place = f"{one_line(frame.path)}:{frame.line} in {one_line(frame.function)}"
    if not source:
        return place
    fits = LABEL + 2 + len(place) + 3 + len(source) <= width
    return f"{place}:  {source}" if fits else f"{place}:\n  {source}"


def _reason(report: ExitReport, scene: FailurePlace, width: int, colour: bool) -> list[str]:
    """Return the report line with the reason of the failure; empty if the reason only repeats the exception."""
    bare = _without_who(report.reason)
    said = one_line(scene.said)
    if report.chain:
        whole = one_line(linked(report.chain))
        for count in range(len(report.chain) - 1, 0, -1):
            bare = bare.removeprefix(one_line(linked((*report.chain[:count], "because "))))
        if whole.startswith(bare.partition("raised ")[2] or bare):
            return []
    if not said or bare in said or bare.endswith(f"raised {said}"):
        return []
    return entry("reason", bare.replace(f" ({said})", ""), width, colour)


def _seen(report: ExitReport, width: int, colour: bool) -> list[str]:
    """Return lines with messages of Slurm, Kubernetes and the kernel about the job's end, without messages that the
    reason contains.
    """
    lines: list[str] = []
    for item in report.evidence:
        text = one_line(item.text)
        if item.kind not in _SEEN or len(lines) >= _MOST_SEEN or text in report.reason:
            continue
        text = f"{one_line(item.source) or item.kind}: {text}"
        text = text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + " …"
        lines += entry("" if lines else "seen", text, width, colour)
    return lines


def _class(report: ExitReport, decision: Decision | None) -> list[str]:
    parts = [f"{_phrase(report)} (exit code {report.code})", _FAULT[report.blame]]
    if decision is None:
        # If the job ended by request, nothing is known about whether another run would help.
        return parts if report.blame is Blame.OPERATOR else [*parts, _RERUN[report.rerun]]
    match decision.kind:
        case DecisionKind.FAIL:
            begun, _, why = decision.reason.partition(": ")
            known = begun == "not started" and why in report.reason
            told = one_line(decision.reason).replace(f"{report.phrase} would fail", "it would fail")
            parts.append(begun if known else f"not restarted: {told}")
        case DecisionKind.STOP:
            pass  # the headline already shows the request to stop
        case _:
            parts.append(f"{decision.kind.value}: {one_line(decision.reason)}")
    return parts


def _lines(scene: FailurePlace) -> str:
    if scene.last_line is None:
        return ""
    if scene.first_line is None or scene.first_line == scene.last_line:
        return f":{scene.last_line}"
    return f":{scene.first_line}-{scene.last_line}"


def _logs(scene: FailurePlace, width: int, colour: bool) -> list[str]:
    """Return the line with the culprit's log, and a line for another rank's log if the evidence is in that log."""
    lines = entry("log", scene.log + _lines(scene), width, colour) if scene.log else []
    if scene.witness_log:
        label = "" if lines else "log"
        lines += entry(label, f"rank {scene.witness}'s lines are the evidence: {scene.witness_log}", width, colour)
    return lines


def _evidence(report: ExitReport) -> tuple[Evidence, ...]:
    """Return the evidence items that no other line of the report shows.

    Ranks that ended in the same way after the culprit are one item. If all other ranks did, there is no item for them,
    because the line "others" shows it.
    """
    ends: dict[str, list[Evidence]] = {}
    for item in report.evidence:
        if item.kind is EvidenceKind.COLLATERAL:
            ends.setdefault(item.text, []).append(item)
    shown = [
        item for item in report.evidence if item.kind is not EvidenceKind.COLLATERAL and item.source != LEFT_RUNNING
    ]
    if len(ends) > 1 or not report.collateral:
        shown += [replace(same[0], source=", ".join(item.source for item in same)) for same in ends.values()]
    return tuple(shown)


def _in_full(report: JobReport, width: int, colour: bool) -> list[str]:
    """Return the lines about the checks before the last attempt, and about each attempt."""
    attempts = report.attempts
    taken = attempts[-1].checks if attempts else None
    checks = check_lines(taken, width, colour) if taken is not None else []
    return checks + attempt_lines(attempts, width=width, colour=colour, parts=True)


def _others(report: ExitReport) -> str:
    """Return the line "others", about the ranks that ended because of the culprit.

    It says how they ended if all ended in the same way.
    """
    who = ranks(report.collateral)
    ends = {item.text for item in report.evidence if item.kind is EvidenceKind.COLLATERAL}
    how = f" ({one_line(ends.pop())})" if len(ends) == 1 else ""
    return f"{who} ended because of it{how}"


def _commands(report: JobReport, scene: FailurePlace, *, verbose: bool) -> list[str]:
    """Return commands to type next, the most specific first.

    `holdfast logs` is left out if another line shows the log's place, or if the log is empty. `scene`: the place of the
    failure in the job's log. `verbose`: the report has all evidence, so no command for it is named.
    """
    last, logs = report.report, next_command(report)
    own = last.hint or logs
    empty = bool(scene.log) or "printed nothing" in last.reason
    return [
        *([own] if own != logs or not empty else []),
        *([] if verbose else [f"holdfast show {report.job_id} --verbose"]),
        f"holdfast exits {_page(last)}",
    ]


def _page(report: ExitReport) -> str:
    """Return the argument with which `holdfast exits` shows the report's class: its name, or its code if a component
    made up the name."""
    from holdfast.catalogue.exit_rows import load

    return report.phrase if report.phrase in load().by_phrase else str(report.code)


def _next(commands: Sequence[str], width: int, colour: bool) -> list[str]:
    """Put as many commands on each line as fit. Leave out a command that is the beginning of another command."""
    lines: list[str] = []
    for command in map(one_line, commands):
        if any(other.startswith(f"{command} ") for other in commands):
            continue
        more = f"{lines[-1]} · {command}" if lines else ""
        if more and LABEL + 2 + len(more) <= width:
            lines[-1] = more
        else:
            lines.append(command)
    return [line for at, text in enumerate(lines) for line in entry("" if at else "next", text, width, colour)]


def _ends(record: AttemptRecord, report: ExitReport) -> bool:
    """Return whether the job's report is about this attempt, and not about a later stop request.

    Compare everything but the hint, because a missing hint is later added from files.
    """
    own = record.report
    return (own.attempt, own.phrase, own.code, own.reason) == (
        report.attempt,
        report.phrase,
        report.code,
        report.reason,
    )


def _attempts(attempts: Sequence[AttemptRecord], width: int, colour: bool, *, whole: bool = True) -> list[str]:
    """Return a line for each series of attempts that ended in the same way; empty if all attempts were equal, because
    then another line shows their number.

    `whole`: whether the job ended in the same way as its last attempt.
    """
    groups = [list(run) for _, run in groupby(attempts, key=_alike)]
    if len(groups) < 2 and whole and not any(record.decision.avoid for record in attempts[:-1]):
        return []
    lines: list[str] = []
    left = len(groups) - _MOST_ATTEMPTS
    for run in groups[max(0, left) :]:
        lines += entry("" if lines else "attempts", _run(run), width, colour)
    if left > 0:
        lines += entry("", f"before these: {left} more, with `holdfast show`", width, colour)
    return lines


def _run(run: Sequence[AttemptRecord]) -> str:
    first, last = run[0], run[-1]
    report = last.report
    what = ended_as(report)
    if last.decision.avoid:
        what += f", then without {', '.join(last.decision.avoid)}"
    what = one_line(what)
    took = duration(last.ended_at - first.started_at)
    if len(run) == 1:
        return f"{first.attempt}: {what}, {took}, from {clock(first.started_at)}"
    return f"{first.attempt} to {last.attempt}: {len(run)} × the same, {what}, {took}, from {clock(first.started_at)}"


def _alike(record: AttemptRecord) -> tuple[object, ...]:
    report = record.report
    first = (report.first.rank, report.first.node) if report.first else None
    return report.phrase, report.fingerprint or report.reason, first


def _without_who(reason: str) -> str:
    """Return the reason without the rank that it names, because the next line of the report names the rank."""
    text = one_line(reason)
    found = _WHO.match(text)
    return text[found.end() :] if found else text
