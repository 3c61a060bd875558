"""Finds the ranks that did not join a collective, from the flight-recorder dumps of all ranks. Pure.

Each rank numbers a group's collectives in the same order. The blocked collective is the incomplete one with the lowest
number that some rank has called. A rank of the group whose last number is lower never joined it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.explain.causes.diagnosis import Diagnosis, named
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.text import sentences
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import Evidence, EvidenceKind, Original
from holdfast.model.flight_records import CollectiveRecord, FlightDump, GroupFlight
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase

SURE = 0.9
_WAITED = frozenset({
    Phrase.COLLECTIVE_TIMEOUT, Phrase.COLLECTIVE_MISMATCH, Phrase.HUNG_WORKER, Phrase.PEER_LOST,
})  # fmt: skip
_MOST = 8


class MissingRanks(Noun, frozen=True, kw_only=True):
    """The ranks that did not join a collective, and a sentence about it."""

    #: Ranks that never joined the collective, or called another collective in its place.
    ranks: tuple[int, ...]
    why: str
    #: Whether the missing ranks called another collective instead.
    other: bool = False


def missing(flights: Sequence[FlightDump]) -> MissingRanks | None:
    """Return the ranks that the other ranks wait for; None if the flight-recorder dumps show none."""
    groups: dict[str, dict[int, GroupFlight]] = {}
    for flight in flights:
        for group in flight.groups:
            groups.setdefault(group.group, {})[flight.rank] = group
    found = [one for name, of_group in groups.items() if (one := _in_group(name, of_group)) is not None]
    waiting = {flight.rank for flight in flights if any(group.waits is not None for group in flight.groups)}
    # A missing rank that waits in another group is late because of that other group, so it is not the cause.
    if free := [one for one in found if not set(one.ranks) & waiting]:
        return free[0]
    if len(found) < 2:
        return found[0] if found else None
    ranks = tuple(sorted({rank for one in found for rank in one.ranks}))
    return MissingRanks(ranks=ranks, why=f"groups wait for each other: {'; '.join(one.why for one in found[:3])}")


def _in_group(name: str, of_group: dict[int, GroupFlight]) -> MissingRanks | None:
    waits = {rank: group.waits for rank, group in of_group.items() if group.waits is not None}
    if not waits:
        return None
    number = min(one.number for one in waits.values())
    there = {rank: one for rank, one in waits.items() if one.number == number}
    late = {rank: group.last for rank, group in of_group.items() if (group.last.number if group.last else 0) < number}
    call = next(iter(there.values()))
    who = sentences.ranks(tuple(sorted(there)))
    what = f"{call.name} number {number} of {name}"
    at = f", called at {call.place}" if call.place else ""
    if late:
        ranks = tuple(sorted(late))
        before = late[ranks[0]]
        last = (
            f"the last of rank {ranks[0]} is {before.name} number {before.number}" if before else "it has called none"
        )
        why = f"{sentences.ranks(ranks)} never joined {what}, in which {who} wait{at}; {last}{_where(before)}"
        return MissingRanks(ranks=ranks, why=why)
    silent = tuple(sorted({rank for group in of_group.values() for rank in group.ranks} - set(of_group)))
    if silent and len(silent) < len(there) == len(of_group):
        return MissingRanks(
            ranks=silent,
            why=f"{who} wait in {what}{at}; {sentences.ranks(silent)} left no dump, and most likely never joined",
        )
    kinds = Counter((one.name, one.sizes) for one in there.values())
    if len(kinds) < 2:
        return None
    usual, count = kinds.most_common(1)[0]
    if count * 2 <= len(there):
        usual = (there[min(there)].name, there[min(there)].sizes)
    odd = {rank: one for rank, one in there.items() if (one.name, one.sizes) != usual}
    first = odd[min(odd)]
    rest = sentences.ranks(tuple(sorted(set(there) - set(odd))))
    most = next(one for rank, one in there.items() if rank not in odd)
    those = sentences.ranks(tuple(sorted(odd)))
    why = f"{those} called {_call(first)} as number {number} of {name}, and {rest} {_call(most)}"
    return MissingRanks(ranks=tuple(sorted(odd)), why=why, other=True)


def _where(one: CollectiveRecord | None) -> str:
    return f" (called at {one.place})" if one is not None and one.place else ""


def _call(one: CollectiveRecord) -> str:
    return f"{one.name}{f' of {one.sizes}' if one.sizes else ''}{f' at {one.place}' if one.place else ''}"


def recorded(diagnosis: Diagnosis, evidence: AttemptEvidence, readings: Sequence[Reading]) -> Diagnosis:
    """Add data from the flight recorders' dumps to the diagnosis: the ranks that did not join, and each rank's last
    collective."""
    if not evidence.flights or diagnosis.phrase not in _WAITED:
        return diagnosis
    found = missing(evidence.flights)
    lines = [_line(flight) for flight in evidence.flights[:_MOST]]
    text = "\n".join([*([found.why] if found is not None else []), *lines])
    item = Evidence(kind=EvidenceKind.LOG, text=text, source="flight recorder")
    diagnosis.evidence.insert(0, item)
    if found is None or (diagnosis.phrase == Phrase.HUNG_WORKER and diagnosis.rank is not None):
        return diagnosis
    diagnosis.reason = f"{found.why} (by PyTorch's flight recorder)"
    diagnosis.rank = found.ranks[0]
    diagnosis.worker = next((one.worker for one in readings if one.worker.rank == diagnosis.rank), diagnosis.worker)
    ended = diagnosis.worker.exit if diagnosis.worker is not None else None
    diagnosis.exit = ended if ended is not None and ended.rank == diagnosis.rank and not ended.after_stop else None
    diagnosis.original = diagnosis.original if diagnosis.exit is not None else Original()
    diagnosis.cause, diagnosis.wording, diagnosis.remark = None, None, ""
    diagnosis.rule, diagnosis.line = "", None
    diagnosis.also = [named(rank, evidence) for rank in found.ranks[1:_MOST]]
    failed = (each.worker for each in readings if each.worker.exit is not None and not each.worker.exit.ok)
    diagnosis.collateral = tuple(sorted(each.rank for each in failed if each.rank not in found.ranks))
    diagnosis.confidence = SURE
    return diagnosis


def _line(flight: FlightDump) -> str:
    said = []
    for group in flight.groups[:4]:
        if group.last is not None:
            state = "done" if group.last.done else group.last.state or "not done"
            said.append(f"{group.group}: {group.last.name} number {group.last.number}, {state}{_where(group.last)}")
    return f"rank {flight.rank}: {'; '.join(said) or 'no collective'}"
