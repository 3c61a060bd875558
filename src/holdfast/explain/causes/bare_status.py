"""Explains exits that no log line explains: only a signal or a status, a rank that exited early, no evidence at all."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.catalogue.exit_codes import signal_code
from holdfast.explain.causes.attribution import Attribution
from holdfast.explain.causes.diagnosis import Diagnosis, quoted_line, who_of
from holdfast.explain.logs.launcher_notes import telling
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import (
    Evidence,
    EvidenceKind,
    Original,
    OtherRule,
    Rerun,
    Trigger,
    WorkerExit,
    signal_name,
)
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, EndNote, LinePlace, QuotedLine, UncaughtException, Weight

#: Signals that a bug in the program itself causes: ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS.
CRASHES = frozenset({4, 5, 6, 7, 8, 11, 31})

#: Exit statuses of shells and timeout(1) → the report's failure class, the text, and whether a rerun helps (if the
#: answer differs from the catalogue row's).
_STATUSES: dict[int | None, tuple[str, str, Rerun | None]] = {
    124: (Phrase.TIME_LIMIT_REACHED, "as timeout(1) gives when its time is over", Rerun.UNKNOWN),
    126: (Phrase.EXEC_FORMAT_ERROR, "a file that it runs cannot be executed", None),
    127: (Phrase.COMMAND_NOT_FOUND, "a command that it runs does not exist", None),
}


def signal_reason(who: str, name: str, phrase: str, uncaught: UncaughtException | None = None) -> str:
    if phrase == Phrase.NATIVE_CRASH:
        if uncaught is not None:
            told = sentences.one_line(f"{uncaught.type}: {uncaught.what}" if uncaught.what else uncaught.type, 240)
            return f"{who}: crashed in native code ({name}) of a C++ exception that it did not catch, {told}"
        return f"{who}: crashed in native code ({name}), and nothing in its log says why"
    return f"{who}: ended by {name}; the sender and the reason are unknown"


def bare_status(reading: Reading, ended: WorkerExit | None, matcher: Matcher, *, several: bool = False) -> Diagnosis:
    """Diagnose the attempt from a worker's exit signal or exit status alone.

    reading: the reading of the worker's logs.
    ended: the worker's exit.
    several: whether the job has other ranks.
    """
    if ended is None:
        return unexplained([reading], matcher)
    typed = ended.pid is None and ended.ended_at is None and not several
    who = who_of(ended.role, None if typed else ended.rank, ended.node)
    sig = ended.signal
    code = ended.exit_code
    if sig is None and code is not None and 128 < code <= 159:
        sig = code - 128  # a shell exits with 128 + N if a signal N killed its child
    if sig is not None:
        name = signal_name(sig)
        phrase = Phrase.NATIVE_CRASH if sig in CRASHES else Phrase.KILLED_BY_SIGNAL
        row = matcher.catalogue.row(phrase)
        diagnosis = Diagnosis(
            phrase,
            row,
            Trigger.SIGNAL,
            code=signal_code(sig) if phrase == Phrase.KILLED_BY_SIGNAL else row.code,
            reason=signal_reason(who, name, phrase, reading.said.uncaught),
            rule=OtherRule.EXIT_STATUS,
        )
        if phrase == Phrase.NATIVE_CRASH and reading.said.uncaught is not None:
            diagnosis.solution = (
                "Read the exception's own words: they say what the C++ code was given. Catch it where it is thrown, or"
                " find that place: gdb's `catch throw`, or core dumps (ulimit -c unlimited) and gdb's `bt`."
            )
        if ended.signal is None:
            diagnosis.meaning = f"which stands for {name}"
        if sig == 9 and (grown := reading.said.grown):
            diagnosis.reason += f"; its last lines show memory growing ({grown}): look for a memory kill first"
        return diagnosis
    if code is None:
        row = matcher.catalogue.row(Phrase.UNEXPLAINED)
        return Diagnosis(
            Phrase.UNEXPLAINED,
            row,
            None,
            reason=f"{who}: vanished without an exit status",
            confidence=0.5,
            rule=OtherRule.EXIT_STATUS,
        )
    if code in _STATUSES:
        stands_for, meaning, rerun = _STATUSES[code]
        row = matcher.catalogue.row(stands_for)
        reason = f"{who}: status {code}, {meaning}"
        return Diagnosis(
            stands_for,
            row,
            Trigger.EXIT_CODE,
            rerun=rerun,
            reason=reason,
            meaning=meaning,
            rule=OtherRule.EXIT_STATUS,
        )
    row = matcher.catalogue.row(Phrase.UNEXPLAINED)
    said = reading.last_line
    silent = "and printed nothing" if reading.worker.log or not reading.said.given else "and its log is not among these"
    silent = silent if said is None else f"and nothing known in its log says why; its last line: {said.text}"
    return Diagnosis(
        Phrase.UNEXPLAINED,
        row,
        Trigger.EXIT_CODE,
        reason=f"{who}: exited with status {code} {silent}",
        evidence=[said] if said is not None else [],
        confidence=0.5,
        rule=OtherRule.EXIT_STATUS,
    )


def left_early(ended: WorkerExit, who: Attribution, matcher: Matcher) -> Diagnosis:
    row = matcher.catalogue.row(Phrase.COLLECTIVE_MISMATCH)
    name = who_of(ended.role, ended.rank, ended.node)
    said = who.culprit.reading.last_line if who.culprit is not None else None
    last = "its last line is in the evidence" if said is not None else "it printed nothing"
    return Diagnosis(
        Phrase.COLLECTIVE_MISMATCH,
        row,
        Trigger.EXIT_CODE,
        rerun=Rerun.UNKNOWN,
        reason=f"{name}: ended with status 0 while other ranks still waited for it in a collective operation",
        solution=(
            "Make every rank take the same number of steps (equal shards, drop_last, join), or find why this one left"
            f" early; {last}."
        ),
        evidence=[said] if said is not None else [],
        confidence=0.7,
    )


def missing_command(reading: Reading, ended: WorkerExit | None) -> Clue | None:
    """Return a clue for a missing command, if the last line is bash's "No such file or directory" and the status is
    127.

    For a missing file, bash prints the same sentence but exits with another status.
    """
    last = reading.said.end
    match = _NO_SUCH.match(last.text) if last is not None and ended is not None and ended.exit_code == 127 else None
    known = next((clue for clue in reading.said.clues if clue.line == last), None)
    if match is None or last is None or (known is not None and known.phrase == Phrase.CODE_NOT_FOUND):
        return None
    clue = known or Clue(weight=Weight.ENDING, phrase="", line=last, place=LinePlace(line=last.number))
    return replace(clue, phrase=Phrase.COMMAND_NOT_FOUND, wording="", fields={"cmd": match["cmd"]})


_NO_SUCH = Lazy(r"\S+: line \d+: (?P<cmd>[^:\s]*/[^:]+): No such file or directory$")


def unexplained(readings: Sequence[Reading], matcher: Matcher) -> Diagnosis:
    row = matcher.catalogue.row(Phrase.UNEXPLAINED)
    lines = sum(reading.said.lines for reading in readings)
    told = [note for reading in readings for note in reading.said.notes]
    diagnosis = Diagnosis(Phrase.UNEXPLAINED, row, None, confidence=0.0)
    counted = f"{lines} {'line' if lines == 1 else 'lines'}"
    failed = told or any(reading.worker.exit is not None for reading in readings)
    diagnosis.reason = f"nothing in {counted} says why" if failed else f"no failure found in {counted}"
    if not lines:
        diagnosis.reason = "there is no log to read"
    if last := telling(told):
        told_by_launcher(diagnosis, last)
        diagnosis.evidence.append(_line(last.line))
    elif readings and (end := readings[-1].said.end) is not None:
        diagnosis.evidence.append(_line(end))
    return diagnosis


def told_by_launcher(diagnosis: Diagnosis, note: EndNote) -> None:
    """Add the exit that a launcher or scheduler reports to the diagnosis, if no log line shows the cause."""
    diagnosis.rank = note.rank
    diagnosis.line = quoted_line(note.line)
    diagnosis.confidence = 0.5 if note.rank is not None else 0.0
    how = f"status {note.exit_code}" if note.exit_code is not None else signal_name(note.signal or 0)
    who = "it" if note.rank is None else who_of("worker", note.rank, note.host)
    says = f"{note.by} says that " if note.by else ""
    diagnosis.reason += f"; {says}{who} ended with {how}"
    diagnosis.original = Original(exit_code=note.exit_code, signal=signal_name(note.signal) if note.signal else None)
    if note.error_file:
        on = f" on {note.host}" if note.host else ""
        diagnosis.solution = f"Read {note.error_file}{on}: the worker wrote its exception there."


def _line(line: QuotedLine) -> Evidence:
    return Evidence(kind=EvidenceKind.LOG, text=line.raw, source=f"{line.source}:{line.number}", at=line.moment)
