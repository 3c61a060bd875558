"""Finds the culprit: of all workers that died, the one that died first of its own cause.

Kinds of evidence, strongest first: an own crash (signal, exception, memory kill) > a silent nonzero exit > lines that
only accuse a peer. Accusations are edges: the module follows them to a rank that others accuse and that accuses no
other. A worker that exits after holdfast's stop is collateral, even if it accuses.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from holdfast.explain.death_order import kill_of, moments
from holdfast.explain.log_reader import Reading, says_own_exception
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, Weight

#: Seconds. Deaths closer together than this are ordered by their evidence, not by which one holdfast noticed first.
SAME_INSTANT_S = 0.2
#: Seconds. The same limit where the first worker exited without a line: the gang then waits half a second for the
#: others, and printing a traceback takes time.
AFTER_SILENCE_S = 0.6


class EvidenceStrength(enum.IntEnum):
    """How strong the evidence of one worker's end is; a smaller number is stronger."""

    OWN = 1
    SILENT = 2
    PEERS = 3
    #: The worker exited with status 0, or holdfast stopped it.
    NONE = 4


class Suspect(msgspec.Struct):
    """One worker with its reading and its end."""

    reading: Reading
    exit: WorkerExit | None
    kind: EvidenceStrength

    @property
    def rank(self) -> int:
        return self.reading.worker.rank

    @property
    def died(self) -> tuple[float, int]:
        ended = self.exit
        if ended is None:
            return (float("inf"), 0)
        return (ended.ended_at if ended.ended_at is not None else 0.0, ended.order)


class Attribution(msgspec.Struct):
    """The culprit, the ranks that ended like it, and the ranks that ended because of it."""

    culprit: Suspect | None
    #: Half a sentence for the reason, where the choice of the culprit needs one.
    why: str = ""
    also: list[Suspect] = msgspec.field(default_factory=list)
    confidence: float = 1.0
    collateral: tuple[int, ...] = ()
    #: The culprit exited with status 0 while the other ranks still waited for it.
    left_early: bool = False
    #: The culprit was the only rank that still ran, and it had accused no rank, when all others stopped waiting for a
    #: peer.
    missing: Suspect | None = None


def attribute(readings: Sequence[Reading], evidence: AttemptEvidence) -> Attribution:
    """The culprit, where the operating system reported how the workers ended."""
    suspects = [Suspect(reading, reading.worker.exit, kind_of(reading, evidence)) for reading in readings]
    active = [suspect for suspect in suspects if suspect.kind is not EvidenceStrength.NONE]
    if not active:
        return Attribution(None)
    own = [suspect for suspect in active if suspect.kind is not EvidenceStrength.PEERS]
    if all(suspect.kind is not EvidenceStrength.OWN for suspect in active):
        cut_short = [
            Suspect(each, each.worker.exit, EvidenceStrength.OWN) for each in readings if _was_ending(each, evidence)
        ]
        if cut_short:
            return _earliest(cut_short, suspects)
    if own:
        return _earliest(own, suspects)
    return _by_blame(active, suspects)


def fell_first(who: Attribution, readings: Sequence[Reading], evidence: AttemptEvidence) -> list[Suspect]:
    """The ranks that a device's fault may have killed first: the culprit, and those that the order of deaths does not
    exclude.

    A rank that died before the culprit counts, even if it accuses a peer: the first sign of a failing device is often a
    missing peer. A rank that died in the same instant counts where it has a cause of its own, or where the culprit has
    no better one.
    """
    culprit = who.culprit
    if culprit is None:
        return []
    instant_s = AFTER_SILENCE_S if culprit.kind is EvidenceStrength.SILENT else SAME_INSTANT_S
    found = [culprit]
    for reading in readings:
        suspect = Suspect(reading, reading.worker.exit, kind_of(reading, evidence))
        if suspect.kind is EvidenceStrength.NONE or suspect.rank == culprit.rank:
            continue
        later_s = suspect.died[0] - culprit.died[0]
        if later_s < 0 or (
            later_s <= instant_s
            and (suspect.kind is not EvidenceStrength.PEERS or culprit.kind is not EvidenceStrength.OWN)
        ):
            found.append(suspect)
    return found


def kind_of(reading: Reading, evidence: AttemptEvidence) -> EvidenceStrength:
    ended = reading.worker.exit
    if ended is None or ended.ok or after_stop(ended, evidence):
        return EvidenceStrength.NONE
    best = reading.best
    if kill_of(ended, evidence.memory_kills) is not None:
        return EvidenceStrength.OWN
    if ended.signal is not None and (ended.signal != 6 or reading.first_hand):
        return EvidenceStrength.OWN
    if best is not None and best.weight < Weight.PEERS:
        return EvidenceStrength.OWN
    if best is not None or not reading.first_hand:
        return EvidenceStrength.PEERS
    return EvidenceStrength.SILENT


def after_stop(ended: WorkerExit, evidence: AttemptEvidence) -> bool:
    if ended.after_stop or ended.was_dying:
        return ended.after_stop
    return evidence.stop_asked_at is not None and ended.ended_at is not None and ended.ended_at > evidence.stop_asked_at


_ENDED_BY_EXCEPTION = (Weight.DEATH, Weight.BROAD, Weight.OWN)


def cut_short(worker: WorkerEvidence, evidence: AttemptEvidence) -> bool:
    """Whether holdfast's stop reached the worker while it was exiting: its own exception was its last line, written
    before the stop.

    Python prints the traceback first and exits some time later; a peer that noticed the failure may be dead by then.
    """
    ended, stopped_at, said_at = worker.exit, evidence.stop_asked_at, worker.last_output_at
    if ended is None or ended.ok or stopped_at is None or said_at is None or said_at > stopped_at:
        return False
    said = worker.reading
    own = said.own_exception if said is not None else says_own_exception(ended.last_words)
    return own and after_stop(ended, evidence)


def _was_ending(reading: Reading, evidence: AttemptEvidence) -> bool:
    """The same judgement once the log is read: an exception ended the program, and no work followed it.

    Where only a launcher reported the end, its time is not known; then the exception alone counts.
    """
    best, ended = reading.best, reading.worker.exit
    if best is None or best.doubtful or best.raised is None or best.weight not in _ENDED_BY_EXCEPTION:
        return False
    if ended is not None and _undated(ended):
        return ended.after_stop and not _of_a_link(best)
    return cut_short(reading.worker, evidence)


def _undated(ended: WorkerExit) -> bool:
    return ended.ended_at is None and not ended.pid


def _of_a_link(clue: Clue) -> bool:
    """A broken connection. With several ranks it is mostly the effect of another rank's death."""
    return clue.phrase in _LINK


_LINK = frozenset({Phrase.NETWORK_LOST, Phrase.PEER_LOST})


def _earliest(own: list[Suspect], everybody: Sequence[Suspect]) -> Attribution:
    first_at = min(suspect.died[0] for suspect in own)
    wordless = all(suspect.kind is EvidenceStrength.SILENT for suspect in own if suspect.died[0] == first_at)
    instant_s = AFTER_SILENCE_S if wordless else SAME_INSTANT_S
    together = [suspect for suspect in own if suspect.died[0] - first_at <= instant_s]
    at = moments(suspect.exit for suspect in together if suspect.exit is not None)
    together.sort(
        key=lambda suspect: (
            suspect.kind,
            at.get(suspect.rank, 0.0),
            suspect.died[1],
            suspect.died[0],
        )
    )
    culprit = together[0]
    # Equal: the same kind at the same moment, and not even the order of one kernel tells them apart.
    also = [
        suspect
        for suspect in together[1:]
        if suspect.kind is culprit.kind
        and suspect.died[0] == culprit.died[0]
        and (suspect.died[1] == culprit.died[1] or suspect.reading.worker.node != culprit.reading.worker.node)
    ]
    return Attribution(
        culprit,
        also=also,
        confidence=round(1.0 / (1 + len(also)), 2) if also else (0.95 if len(together) > 1 else 1.0),
        collateral=_others(everybody, culprit, also),
    )


def _by_blame(active: list[Suspect], everybody: Sequence[Suspect]) -> Attribution:
    """The culprit where no rank has evidence of its own: the rank that others accuse and that accuses no other."""
    accused: dict[int, int] = {}
    accusers = {suspect.rank: set(suspect.reading.said.blames) - {suspect.rank} for suspect in active}
    for blamed in accusers.values():
        for rank in blamed:
            accused[rank] = accused.get(rank, 0) + 1
    sinks = [suspect for suspect in everybody if suspect.rank in accused and not accusers.get(suspect.rank)]
    sinks.sort(key=lambda suspect: -accused[suspect.rank])
    if sinks:
        most = accused[sinks[0].rank]
        top = [suspect for suspect in sinks if accused[suspect.rank] == most]
        names = ", ".join(f"rank {rank}" for rank, blamed in accusers.items() if top[0].rank in blamed)
        return Attribution(
            top[0],
            f"{names} {'say' if ',' in names else 'says'} that rank {top[0].rank} went away or did not answer",
            top[1:],
            round(0.8 / len(top), 2),
            _others(everybody, top[0], top[1:]),
            left_early=_left(top[0]),
        )
    gone = [
        suspect for suspect in everybody if _left(suspect) and suspect.exit is not None and not suspect.exit.after_stop
    ]
    earliest = min(suspect.died[0] for suspect in active)
    gone = [suspect for suspect in gone if suspect.died[0] <= earliest]
    if gone:
        gone.sort(key=lambda suspect: suspect.died)
        return Attribution(
            gone[0],
            "it ended with status 0 while the others were still working with it",
            gone[1:],
            round(0.7 / len(gone), 2),
            _others(everybody, gone[0], gone[1:]),
            left_early=True,
        )
    first = min(active, key=lambda suspect: suspect.died)
    ran = [suspect for suspect in everybody if suspect.exit is not None and suspect.exit.after_stop]
    each = "every rank that ended" if ran else "every rank"
    return Attribution(
        first,
        f"{each} only says that a peer went away or did not come; this one said so first",
        confidence=0.3,
        collateral=_others(everybody, first, []),
        missing=ran[0] if len(ran) == 1 and _said_nothing_of_peers(ran[0]) else None,
    )


def _said_nothing_of_peers(suspect: Suspect) -> bool:
    return suspect.exit is not None and not suspect.reading.said.of_peers


def _left(suspect: Suspect) -> bool:
    return suspect.exit is not None and suspect.exit.ok


def _others(everybody: Sequence[Suspect], culprit: Suspect, also: Sequence[Suspect]) -> tuple[int, ...]:
    named = {id(culprit), *map(id, also)}
    return tuple(
        sorted(
            suspect.rank
            for suspect in everybody
            if id(suspect) not in named and suspect.exit is not None and not suspect.exit.ok
        )
    )
