"""Finds ranks that failed in the same way. None of them caused the others' failure, so the report names no culprit.

Ranks that raise the same exception at the same place have a common reason, even if one rank was first. Ranks that were
stopped while they raised it count too.

If a rank exits with a plain status and no line that the catalogue knows, the gang waits half a second for other ranks.
Ranks that exit by themselves within that time, with the same status, have a common reason too. For example, all of them
reject a configuration, or a file is missing for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.causes.attribution import AFTER_SILENCE_S, Attribution, EvidenceStrength, Suspect, kind_of
from holdfast.explain.causes.diagnosis import Diagnosis
from holdfast.explain.causes.fingerprint import normalized
from holdfast.explain.logs.clue_ranking import key
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.text import sentences as words
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import Blame, Evidence, EvidenceKind, Original
from holdfast.model.human_format import share
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, RaisedException, Weight

#: Maximum number of ranks whose exits the report lists.
_SHOWN = 8


#: Maximum seconds between exits that have a common reason. A rank that exits later has another reason, even with the
#: same exception, because it continued after the first exit.
_TOGETHER_S = 5.0
#: The weights of clues whose exception ended the program.
_RAISED = (Weight.DEATH, Weight.BROAD, Weight.OWN)


def raised_alike(best: Clue, others: Sequence[tuple[int, RaisedException | None]]) -> tuple[int, ...]:
    """Return the ranks that raised the same exception at the same line of code; empty if only one rank raised it.

    `best`: the sign of a failure in the log of one of these ranks.
    """
    mine = _same(raised_by(best))
    if mine is None:
        return ()
    # If only a part of a rank's log was read, only the outermost exception is known: the one that ended the program.
    left = normalized(best.raised.above[0]) if best.raised is not None and best.raised.above else ""
    ranks = {rank for rank, raised in others if _same(raised) == mine or (left and left == _said(raised))}
    return tuple(sorted(ranks)) if len(ranks) > 1 else ()


def raised_by(clue: Clue) -> RaisedException | None:
    """Return the exception by which this clue explains the program's end; None if the clue is no such exception."""
    return clue.raised if clue.weight in _RAISED else None


def _same(raised: RaisedException | None) -> tuple[object, ...] | None:
    """Return a key that is equal for the same exception at the same place, even if numbers in the message differ."""
    if raised is None:
        return None
    return (raised.type, raised.frame[:2] if raised.frame is not None else None, normalized(raised.message))


def _said(raised: RaisedException | None) -> str:
    return normalized(f"{raised.type}: {raised.message}") if raised is not None else ""


def all_raised(diagnosis: Diagnosis, ranks: Sequence[int], everybody: int) -> Diagnosis:
    """Change the report diagnosis for one of these ranks into a diagnosis for all of them."""
    raised = diagnosis.cause.raised if diagnosis.cause is not None else None
    name = share(len(ranks), everybody, "rank")
    diagnosis.fields = {**diagnosis.fields, "who": name, "rank": words.ranks(ranks)}
    if raised is not None:
        place = f" at {raised.frame[0]}:{raised.frame[1]}" if raised.frame is not None else ""
        every = "both of them" if len(ranks) == 2 else "all of them"
        same = every if diagnosis.phrase == Phrase.USER_EXCEPTION else f"{name} raised the same {raised.type}"
        diagnosis.remark = f"{same}{place}, so none of them is the cause of the others"
    else:
        diagnosis.remark = f"{name} said the same, so none of them is the cause of the others"
    ended = diagnosis.exit
    if ended is not None and not ended.after_stop:
        diagnosis.original = Original(exit_code=ended.exit_code)
    diagnosis.alike = tuple(ranks)
    diagnosis.also = []
    diagnosis.worker = diagnosis.exit = diagnosis.rank = None
    diagnosis.collateral = ()
    return diagnosis


def of_a_device(diagnosis: Diagnosis) -> bool:
    """Return whether the report diagnosis blames the hardware.

    Then one device may have caused the exception on all ranks.
    """
    return (
        diagnosis.blame or (diagnosis.wording.blame if diagnosis.wording else None) or diagnosis.row.blame
    ) is Blame.HARDWARE


def same_exception(
    suspect: Suspect, readings: Sequence[Reading], evidence: AttemptEvidence, diagnosis: Diagnosis
) -> tuple[int, ...]:
    """Return all ranks that raised the culprit's exception at the same place; none if some rank failed for another
    reason."""
    if suspect.kind is not EvidenceStrength.OWN or diagnosis.cause is None:
        return ()
    by = suspect.died[0] + _TOGETHER_S
    near = [each for each in readings if Suspect(each, each.worker.exit, EvidenceStrength.OWN).died[0] <= by]
    if raised_by(diagnosis.cause) is None:
        ranks = _said_alike(diagnosis.cause, suspect, near)
    else:
        told = [(each.worker.rank, raised_by(each.best) if each.best else each.said.last_raised) for each in near]
        ranks = raised_alike(diagnosis.cause, told)
    own = (each.worker.rank for each in readings if kind_of(each, evidence) is EvidenceStrength.OWN)
    return ranks if ranks and all(rank in ranks for rank in own) else ()


def _said_alike(cause: Clue, suspect: Suspect, near: Sequence[Reading]) -> tuple[int, ...]:
    """Return the ranks whose log has the same line as the suspect's, and that exited with the same status.

    The line may be a usage message, for example. Return none if the cause is an exception.
    """
    code = suspect.exit.exit_code if suspect.exit is not None else None
    if code is None or not Weight.EVENT < cause.weight < Weight.PEERS:
        return ()
    ranks = [
        each.worker.rank
        for each in near
        if each.worker.exit is not None and each.worker.exit.exit_code == code and each.best is not None
        and (each.best.phrase, normalized(each.best.line.text)) == (cause.phrase, normalized(cause.line.text))
    ]  # fmt: skip
    return tuple(sorted(ranks)) if len(ranks) > 1 else ()


def said_by_all(best: Clue, told: Sequence[tuple[int, Clue]]) -> tuple[int, ...]:
    """Return all ranks that have a clue, if every rank's strongest clue is the same.

    Return none if that clue is an exception that a rank raised by itself, because then the ranks did not wait for
    peers.
    """
    if best.weight < Weight.WARNED and raised_by(best) is not None:
        return ()
    strongest: dict[int, Clue] = {}
    for rank, clue in told:
        if rank not in strongest or key(clue) < key(strongest[rank]):
            strongest[rank] = clue
    same = all((clue.phrase, clue.weight) == (best.phrase, best.weight) for clue in strongest.values())
    return tuple(sorted(strongest)) if same and len(strongest) > 1 else ()


def ended_alike(who: Attribution, readings: Sequence[Reading], evidence: AttemptEvidence) -> list[Suspect]:
    """Return the ranks that exited by themselves with the same status, at nearly the same time and for no known reason.

    Return none if other ranks exited in another way.
    """
    if who.culprit is None or who.culprit.kind is not EvidenceStrength.SILENT:
        return []
    suspects = [Suspect(reading, reading.worker.exit, kind_of(reading, evidence)) for reading in readings]
    active = [suspect for suspect in suspects if suspect.kind is not EvidenceStrength.NONE]
    if len(active) < 2 or any(suspect.kind is not EvidenceStrength.SILENT for suspect in active):
        return []
    codes = {suspect.exit.exit_code for suspect in active if suspect.exit is not None}
    died = [suspect.died[0] for suspect in active]
    if len(codes) > 1 or codes == {None} or max(died) - min(died) > AFTER_SILENCE_S:
        return []
    return active


def together(diagnosis: Diagnosis, fellows: Sequence[Suspect], evidence: AttemptEvidence) -> Diagnosis:
    """Change the report diagnosis for one of these ranks into a diagnosis for all of them.

    The changed diagnosis names no culprit and no collateral ranks.
    """
    code = fellows[0].exit.exit_code if fellows[0].exit is not None else None
    died = [suspect.died[0] for suspect in fellows]
    span_ms = max(1, round(1000 * (max(died) - min(died))))
    everybody = len(evidence.workers)
    who = share(len(fellows), everybody, "rank")
    said = [line for suspect in fellows if (line := suspect.reading.last_line) is not None]
    spoke = bool(said) or any(suspect.reading.said.spoke for suspect in fellows)
    words = "and nothing known in their logs says why" if spoke else "and printed nothing"
    diagnosis.reason = f"{who} exited with status {code} within {span_ms} ms {words}"
    if diagnosis.meaning:
        diagnosis.reason += f"; status {code}, {diagnosis.meaning}"
    elif diagnosis.phrase == Phrase.UNEXPLAINED:
        diagnosis.solution = (
            "Look at what these ranks share at this point: their arguments, their configuration, a file or service that"
            " each of them needs. Have the program say why before it exits: raise an exception, or write to stderr."
        )
    ends = [
        Evidence(kind=EvidenceKind.EXIT_CODE, text=ended.how, source=f"{ended.role}-{ended.rank}", at=ended.ended_at)
        for suspect in fellows[:_SHOWN]
        if (ended := suspect.exit) is not None
    ]
    diagnosis.evidence = [*said[:2], *ends]
    diagnosis.original = Original(exit_code=code)
    diagnosis.alike = tuple(suspect.rank for suspect in fellows)
    diagnosis.worker = diagnosis.exit = diagnosis.rank = None
    diagnosis.collateral = ()
    return diagnosis
