"""Explains logs that say themselves how the job ended: well, because it was asked to stop, or as holdfast reported."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.causes.diagnosis import Diagnosis, quoted_line
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.model.exit_report import Blame, Evidence, EvidenceKind, Original, Rerun, Trigger
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, EndKind, OrderlyEnd, Weight

#: A clue of this weight or a weaker one is no reason to doubt a later statement of a good end.
_WEAK = Weight.WARNED


def in_order(readings: Sequence[Reading], cause: Clue | None) -> OrderlyEnd | None:
    """Return the statement of a good end, if all logs together end well; None: they do not, or nothing says so.

    cause: the strongest clue to a failure. It counts for more, unless it is weak and comes before the statement.
    """
    spoken = [reading for reading in readings if reading.said.lines]
    ends = [reading.said.orderly for reading in spoken]
    whole = next((end for end in ends if end is not None and end.whole), None)
    end = whole or next((end for end in ends if end is not None), None)
    if end is None or (whole is None and None in ends):
        return None
    failed = [note for reading in spoken for note in reading.said.notes if note.exit_code or note.signal is not None]
    asked = end.kind is EndKind.SHUT_DOWN
    if any(note.signal not in _ASKING if asked else note.line.number > end.line.number for note in failed):
        return None
    if cause is None or (asked and cause.phrase in _ENDED):
        return end
    return end if cause.weight >= _WEAK and (end.whole or cause.line.number < end.line.number) else None


#: Signals that ask a process to end, and the classes of such an end.
_ASKING = (1, 2, 3, 15)
_ENDED = (Phrase.KILLED_BY_SIGNAL, Phrase.STOPPED_BY_OPERATOR)


def ended_in_order(end: OrderlyEnd, matcher: Matcher) -> Diagnosis:
    said = sentences.one_line(end.line.text.strip(), 200)
    source = f"{end.line.source}:{end.line.number}"
    seen = [Evidence(kind=EvidenceKind.LOG, text=end.line.raw, source=source, at=end.line.moment)]
    if end.kind is EndKind.SHUT_DOWN:
        row = matcher.catalogue.row(Phrase.STOPPED_BY_OPERATOR)
        reason = f"the program was asked to stop and shut down in order: {said}"
        return Diagnosis(
            Phrase.STOPPED_BY_OPERATOR, row, Trigger.LOG, reason=reason, line=quoted_line(end.line), evidence=seen,
            confidence=0.8,
        )  # fmt: skip
    row = matcher.catalogue.row(Phrase.SUCCEEDED)
    reason = f"{end.by or 'the log'} says that it ended well: {said}"
    return Diagnosis(
        Phrase.SUCCEEDED, row, None, code=0, blame=Blame.UNKNOWN, rerun=Rerun.NEVER, reason=reason,
        solution="Nothing to do.", original=Original(), line=quoted_line(end.line), evidence=seen,
        confidence=0.9 if end.whole else 0.7,
    )  # fmt: skip


def as_reported(found: Diagnosis, readings: Sequence[Reading], matcher: Matcher) -> Diagnosis:
    """Return the diagnosis that `holdfast run` printed into the log, if it differs from what the log's lines show.

    The run has seen more than its log shows, such as a hang.
    """
    told = next((reading.said.verdict for reading in readings if reading.said.verdict is not None), None)
    if told is None or told[0] == found.phrase or not matcher.catalogue.knows(told[0]):
        return found
    phrase, line = told
    seen = Evidence(kind=EvidenceKind.LOG, text=line.raw, source=f"{line.source}:{line.number}")
    success = phrase == Phrase.SUCCEEDED
    return Diagnosis(
        phrase, matcher.catalogue.row(phrase), None if success else Trigger.LOG, code=0 if success else None,
        reason=f"holdfast reported it in this log: {sentences.one_line(line.text, 200)}",
        line=quoted_line(line), evidence=[seen], original=found.original, rank=found.rank, confidence=0.95,
    )  # fmt: skip
