"""Finds the two best causes of other classes that the logs also show, and what decided against each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.explain.causes.exits_from_logs import with_notes
from holdfast.explain.logs.clue_ranking import key
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.text.secret_masking import mask
from holdfast.explain.text.sentences import shortened
from holdfast.model.evidence import WorkerEvidence
from holdfast.model.exit_report import DecidingLine, Rival
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, Weight

MOST_RIVALS = 2
_MOST_TEXT = 300
_KINDS = {
    Weight.EVENT: "a line of the kernel or the scheduler",
    Weight.DEATH: "the exception that ended the program",
    Weight.ENDING: "an error among the last lines",
    Weight.BROAD: "an exception that many causes share",
    Weight.CRASH: "a report of a crash signal",
    Weight.OWN: "an exception that no row knows",
    Weight.WARNED: "a warning or a broad match",
    Weight.PEERS: "a failed connection between workers",
    Weight.ABORT: "a report that the process was ended",
    Weight.CONSEQUENCE: "a consequence of another failure",
}


def rivals_of(
    phrase: str, rule: str, cause: Clue | None, culprit: WorkerEvidence | None, readings: Sequence[Reading]
) -> tuple[Rival, ...]:
    """Return the strongest clues of other classes than `phrase`, one for each class.

    `cause`: the clue that decided; None: no clue did. `culprit`: the worker that failed first, if it is known.
    """
    found: dict[str, tuple[tuple[object, ...], Clue, str]] = {}
    for place, reading in enumerate(readings):
        for clue, against in _beaten(rule, cause, culprit, reading):
            order = (against.startswith(_WENT_ON), *key(clue), place)
            if clue.phrase not in (phrase, Phrase.UNEXPLAINED) and (
                clue.phrase not in found or order < found[clue.phrase][0]
            ):
                found[clue.phrase] = order, clue, against
    best = sorted(found.values(), key=lambda entry: entry[0])[:MOST_RIVALS]
    return tuple(_rival(clue, against) for _, clue, against in best)


_WENT_ON = "the program went on after it"


def _beaten(
    rule: str, cause: Clue | None, culprit: WorkerEvidence | None, reading: Reading
) -> Iterator[tuple[Clue, str]]:
    """Yield each clue of a log with the words for what decided against it."""
    clues = with_notes(reading.said) if reading.worker.exit is None else reading.said.clues
    other = culprit is not None and culprit.exit is not None and reading.worker.rank != culprit.rank
    for clue in clues:
        if other and culprit is not None:
            yield clue, f"it is of rank {reading.worker.rank}, and rank {culprit.rank} failed first"
        elif cause is None:
            yield clue, f"the rule `{rule}` comes before the lines of logs"
        else:
            yield clue, _weaker(clue, cause)
    for clue in reading.said.weaker:
        yield clue, _set_aside(clue, cause)


def _weaker(clue: Clue, cause: Clue) -> str:
    if clue.doubtful and not cause.doubtful:
        return "lines that look like progress follow it"
    if clue.weight > cause.weight:
        return f"{_KINDS[clue.weight]} counts less than {_KINDS[cause.weight]}"
    if clue.weight < cause.weight:
        return "it is not about the process that failed first"
    if clue.hint and not cause.hint:
        return "its wording is broader"
    return "it comes after the deciding line" if cause.place < clue.place else "its wording is broader"


def _set_aside(clue: Clue, cause: Clue | None) -> str:
    match clue.weight:
        case Weight.CONSEQUENCE:
            return "it only says that something else failed"
        case Weight.ABORT:
            return "the process ended itself for a reason that came before"
        case Weight.OWN if cause is not None and cause.weight is Weight.PEERS:
            return "it followed a failed connection"
        case _:
            return _WENT_ON


def _rival(clue: Clue, against: str) -> Rival:
    line = clue.line
    text = mask(shortened(line.raw, _MOST_TEXT))
    shown = DecidingLine(text=text, source=mask(line.source)[:_MOST_TEXT], number=line.number)
    return Rival(row=clue.phrase, wording=clue.wording, line=shown, against=against)
