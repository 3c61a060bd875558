"""Finds the culprit: the first worker that failed by itself, and not because it lost a peer.

Kinds of evidence, strongest first: a crash of the worker itself (signal, exception, memory kill); a nonzero exit
without a message; lines that only blame a peer. If ranks blame each other, the culprit is a rank that others blame and
that blames no rank. A worker that exits after holdfast's stop is collateral, even if it blames a peer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.explain.logs.log_reader import Reading, says_own_exception
from holdfast.model.evidence import AttemptEvidence, MemoryKill, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, Weight


def moments(exits: Iterable[WorkerExit]) -> dict[int, float]:
    """Return the time of each rank's exit, in seconds; 0 if unknown.

    The kernel's order of the exits on a node is certain. So an exit whose time is later than that of a following exit
    gets the following exit's time.
    """
    found: dict[int, float] = {}
    # Go from the node's last exit to its first, and keep for each node: the kernel's order of the current exit, the
    # earliest time from that exit on, and the earliest time after it.
    seen: dict[str, tuple[int, float, float]] = {}
    for ended in sorted(exits, key=lambda ended: -ended.order):
        at = 0.0 if ended.ended_at is None else ended.ended_at
        order, here, beyond = seen.get(ended.node, (ended.order, at, float("inf")))
        if ended.order < order:
            order, here, beyond = ended.order, min(here, at), here
        found[ended.rank] = min(at, beyond)
        seen[ended.node] = (order, min(here, at), beyond)
    return found


def of_node(ended: WorkerExit, node: str) -> bool:
    """Return whether an observation on `node` can be about this worker."""
    return not node or not ended.node or node == ended.node


def kill_of(ended: WorkerExit, kills: Sequence[MemoryKill]) -> MemoryKill | None:
    """Return the OOM kill that ended this worker's process; None if there was none."""
    mine = (kill for kill in kills if of_node(ended, kill.node))
    return next((k for k in mine if k.rank == ended.rank or (k.pid and k.pid == ended.pid)), None)


#: Exits less than this many seconds apart are ordered by the strength of their evidence, because the order in which
#: holdfast noticed them may be chance.
SAME_INSTANT_S = 0.2
#: The same as `SAME_INSTANT_S`, but used if the first worker exited without a message. It is longer, because the gang
#: then waits half a second for other workers, and because printing a traceback takes time.
AFTER_SILENCE_S = 0.6


class EvidenceStrength(enum.IntEnum):
    """The strength of the evidence about one worker's exit; a smaller number is stronger."""

    OWN = 1
    SILENT = 2
    PEERS = 3
    #: The worker exited with status 0, or holdfast stopped it.
    NONE = 4


class Suspect(msgspec.Struct):
    """One worker with its log reading, its exit and the strength of its evidence."""

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
    """The culprit, the ranks that exited in the same way as the culprit (`also`), and the ranks that exited because
    of it (`collateral`)."""

    culprit: Suspect | None
    #: A clause that explains the choice of the culprit, for the report's reason; empty: the choice needs no
    #: explanation.
    why: str = ""
    also: list[Suspect] = msgspec.field(default_factory=list)
    confidence: float = 1.0
    collateral: tuple[int, ...] = ()
    #: Whether the culprit exited with status 0 while other ranks still waited for it.
    left_early: bool = False
    #: The rank that still ran and blamed no peer when all other ranks had stopped waiting for a peer; None: no such
    #: rank.
    missing: Suspect | None = None


def attribute(readings: Sequence[Reading], evidence: AttemptEvidence) -> Attribution:
    """Find the culprit among exits that the operating system reported."""
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
    """Return the ranks that a device fault may have killed first.

    These are the culprit, and each rank that died before it, even if the rank blames a peer: a failing device often
    shows first as a missing peer. A rank that died in the same instant as the culprit counts if it failed by itself, or
    if the culprit did not.
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
    """Return whether the worker was already exiting when holdfast stopped it: its last output before the stop was an
    exception of its own.

    Python prints the traceback some time before the process exits. Meanwhile a peer that noticed the failure may exit
    first.
    """
    ended, stopped_at, said_at = worker.exit, evidence.stop_asked_at, worker.last_output_at
    if ended is None or ended.ok or stopped_at is None or said_at is None or said_at > stopped_at:
        return False
    said = worker.reading
    own = said.own_exception if said is not None else says_own_exception(ended.last_words)
    return own and after_stop(ended, evidence)


def _was_ending(reading: Reading, evidence: AttemptEvidence) -> bool:
    """Return whether the worker was already exiting at holdfast's stop, according to its log (`cut_short` uses its last
    output).

    It was, if an exception ended its program and no work followed. If only a launcher reported the exit, the exit's
    time is unknown, and the exception alone decides.
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
    """Return whether the clue is a broken connection, which is usually an effect of another rank's exit."""
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
    # Suspects of the same kind that died at the same time as the culprit. Empty if the kernel reported an order of
    # exits, because that order decides which suspect died first.
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
    """Find the culprit if no rank failed by itself: the rank that others blame and that blames no other rank."""
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
