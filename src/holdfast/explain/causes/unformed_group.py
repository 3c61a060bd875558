"""Explains a gang whose process group never formed: finds the ranks that did not join, from the logs of all ranks.
Pure.

It searches, in this order, for: a rank without the network interface that it should use; a rank that reached no peer at
the address it tried; a rank that waits for a rank that the job does not have; a rank that uses other key names in the
store than most ranks; ranks whose log has no line about the start of the group, while others waited for one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.explain.causes.diagnosis import Diagnosis, named, quoted_line
from holdfast.explain.causes.exits_from_logs import ranks_alone
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import Blame, Evidence, EvidenceKind, Original
from holdfast.model.human_format import with_address
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, FailedRendezvous, UnreachedPeer

SURE = 0.9
LIKELY = 0.7
_MOST_ALSO = 16
_MEETING = frozenset({
    Phrase.RENDEZVOUS_TIMEOUT, Phrase.RENDEZVOUS_FAILED, Phrase.NETWORK_UNREACHABLE, Phrase.PEER_LOST,
    Phrase.COLLECTIVE_TIMEOUT, Phrase.NETWORK_LOST,
    Phrase.DNS_FAILED, Phrase.COLLECTIVE_SYSTEM_ERROR,
})  # fmt: skip
_WAITING = frozenset({Phrase.RENDEZVOUS_TIMEOUT, Phrase.RENDEZVOUS_FAILED, Phrase.NETWORK_UNREACHABLE})
_CONSEQUENCES = (Phrase.COLLECTIVE_TIMEOUT, Phrase.PEER_LOST, Phrase.NETWORK_LOST)

Words = Mapping[int, FailedRendezvous]


class _Missing(NamedTuple):
    """The ranks that kept the group from forming, with the culprit first, and the text for the report."""

    ranks: tuple[int, ...]
    reason: str
    solution: str
    confidence: float
    blame: Blame | None = None


def unmet(diagnosis: Diagnosis, evidence: AttemptEvidence, readings: Sequence[Reading], matcher: Matcher) -> Diagnosis:
    """If the process group did not form, return a diagnosis that blames the ranks for which the others waited.

    Otherwise return the diagnosis as it is.
    """
    if diagnosis.phrase not in _MEETING:
        return diagnosis
    ended = all(reading.worker.exit is not None for reading in readings)
    if not ended and all(reading.said.given for reading in readings):
        readings = ranks_alone(readings)  # the logs come from files: leave out those of launchers, which join no group
    elif not ended:
        return diagnosis
    if len(readings) < 2:
        return diagnosis
    if len({reading.worker.rank for reading in readings}) < len(readings):
        return diagnosis  # several roles have this rank, so a rank does not identify a worker
    said = {each.worker.rank: each.said.meeting for each in readings if each.said.meeting is not None}
    if not said:
        return diagnosis
    met_at = next((word.at for word in said.values() if word.at), "") or evidence.meeting
    found = (
        _no_interface(said)
        or _strayed(readings, said, met_at)
        or (_too_many(len(readings), said) if ended else None)
        or (_other_names(said) if diagnosis.phrase in _WAITING else None)
        or _silent(diagnosis.phrase, readings, said, met_at)
    )
    if found is None:
        return diagnosis
    _apply(found, diagnosis, evidence, readings)
    if diagnosis.phrase != diagnosis.row.phrase:
        diagnosis.row, diagnosis.line_wording = matcher.catalogue.row(diagnosis.phrase), ""
    return diagnosis


def _no_interface(said: Words) -> _Missing | None:
    """Find ranks that should use a network interface that their node does not have."""
    names = {rank: word.interface for rank, word in said.items() if word.interface}
    if not names:
        return None
    rank = min(names)
    reason = f"rank {rank} found no address on the network interface {names[rank]!r} that it was to use"
    solution = (
        "See the node's interfaces with: ip -brief address. GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name one that "
        "every node has; without them the libraries choose."
    )
    return _Missing(tuple(sorted(names)), reason, solution, SURE)


def _strayed(readings: Sequence[Reading], said: Words, met_at: str) -> _Missing | None:
    """Find ranks that reached no peer at the address that they tried."""
    tried = {rank: word for rank, word in said.items() if word.tried and word.awaits is None and not word.at}
    if not tried:
        return None
    others = tuple(sorted(rank for rank in said if rank not in tried))
    quiet = [reading.worker.rank for reading in readings if reading.worker.rank not in said]
    parts: list[str] = []
    for rank, word in sorted(tried.items())[:4]:
        place = word.tried[0]
        if not parts or (place.host, place.port) != (tried[min(tried)].tried[0].host, tried[min(tried)].tried[0].port):
            who = "it" if len(tried) == 1 else f"rank {rank}"
            parts.append(f"{who} tried {place.host} port {place.port}{_why(word)}")
    first = tried[min(tried)].tried[0]
    if not others:
        if 0 in quiet:
            reason = f"rank 0 never opened its port: {sentences.ranks(tuple(sorted(tried)))} tried {first.host} port "
            reason += f"{first.port} in vain{_why(tried[min(tried)])}; rank 0 {_last(readings, 0)}"
            return _Missing((0,), reason, _LATE, LIKELY)
        reason = f"no rank reached {first.host} port {first.port}{_why(tried[min(tried)])}"
        return _Missing(tuple(sorted(tried)), reason, _link(first.host, first.port), LIKELY)
    who = sentences.ranks(tuple(sorted(tried)))
    where = f"; {sentences.ranks(others)} waited at {met_at}" if met_at else f"; {sentences.ranks(others)} waited"
    reason = f"{who} never reached rank 0: {', '.join(parts)}{where}"
    elsewhere = bool(met_at) and met_at != f"{first.host}:{first.port}"
    solution = _address(met_at) if elsewhere else _link(first.host, first.port)
    return _Missing(tuple(sorted(tried)), reason, solution, SURE)


def _too_many(world: int, said: Words) -> _Missing | None:
    """Find ranks that wait for a rank that the job does not have, or that have another world size."""
    awaits = {rank: word.awaits for rank, word in said.items() if word.awaits is not None and word.awaits >= world}
    counts = {rank: word.of for rank, word in said.items() if word.of is not None and word.of != world}
    wrong = tuple(sorted({*awaits, *counts}))
    if not wrong or len(wrong) == world:
        return None
    rank = wrong[0]
    waits = f"for rank {awaits[rank]}" if rank in awaits else f"for {counts[rank]} ranks"
    size = f"at least {(awaits[rank] or 0) + 1}" if rank in awaits else str(counts[rank])
    reason = f"rank {rank} waited {waits}, and the job has ranks 0 to {world - 1}: "
    reason += f"its world size is {size}, not {world}"
    solution = (
        f"Look for what changes WORLD_SIZE, or passes world_size=, in rank {rank}: holdfast sets it to {world} for "
        f"every rank ({_SETTERS})."
    )
    return _Missing(wrong, reason, solution, SURE, Blame.WORKLOAD)


def _other_names(said: Words) -> _Missing | None:
    """Find ranks that wait for other key names in the store than most ranks."""
    names = {rank: word.key for rank, word in said.items() if word.key}
    counted = Counter(names.values())
    if len(counted) < 2:
        return None
    (usual, count), (_, second) = counted.most_common(2)
    odd = tuple(sorted(rank for rank, name in names.items() if name != usual))
    solution = (
        "Compare what these ranks run: the version of torch (python -c 'import torch; print(torch.__version__)'), the "
        "backend, and the order in which they make their groups."
    )
    if count == second:
        reason = "ranks wait under different names in the store: "
        reason += "; ".join(f"rank {rank} under {name!r}" for rank, name in sorted(names.items())[:4])
        return _Missing(tuple(sorted(names)), reason, solution, LIKELY)
    rest = tuple(sorted(rank for rank, name in names.items() if name == usual))
    reason = f"{sentences.ranks(odd)} waited under {names[odd[0]]!r} in the store, "
    reason += f"and {sentences.ranks(rest)} under {usual!r}"
    reason += ": another version of torch, another backend, or groups made in another order"
    return _Missing(odd, reason, solution, SURE)


def _silent(phrase: str, readings: Sequence[Reading], said: Words, met_at: str) -> _Missing | None:
    """Find ranks without a line about the start of the group, while others waited for one of them."""
    counted = next((word for word in said.values() if word.joined is not None), None)
    if phrase not in _WAITING and (phrase != Phrase.NETWORK_LOST or counted is None):
        return None
    awaited = {word.awaits for word in said.values() if word.awaits is not None}
    quiet = tuple(each.worker.rank for each in readings if each.worker.rank not in said and not _had_come(each))
    if quiet and (awaited & set(quiet) or counted is not None):
        missing = quiet
    elif awaited - set(said):
        missing = tuple(sorted(awaited - set(said)))
    elif len(awaited) == 1 and not quiet:
        missing = tuple(awaited)  # the awaited rank has logged too: it came late, and now waits itself
    else:
        return None
    waiting = tuple(sorted(rank for rank in said if rank not in missing))
    if not waiting:
        return None
    waited_s = max(word.waited_s for word in said.values())
    long = f" {sentences.seconds(waited_s)}" if waited_s else ""
    where = f" at {met_at}" if met_at else ""
    late = all(rank in said for rank in missing)
    came = "came too late" if late else "never joined"
    reason = (
        f"{sentences.ranks(missing)} {came}: {sentences.ranks(waiting)} waited{long} for rank {min(missing)}{where}"
    )
    if counted is not None and counted.of is not None:
        reason += f", where {counted.joined} of {counted.of} had joined"
    if not late:
        reason += f"; {f'rank {missing[0]}'} {_last(readings, missing[0])}"
    return _Missing(missing, reason, _LATE, SURE if awaited & set(missing) else LIKELY)


_LATE = (
    "Look at what the missing rank did before init_process_group: its log (holdfast logs --rank), and with "
    "--hang-timeout its stack. A start that is slow by nature needs a longer timeout= there."
)


_SETTERS = "the script, a module's profile, a .env file, a scheduler's variable that the script reads"


def _link(host: str, port: str) -> str:
    return (
        f"Test the link from that rank's node: nc -vz {host} {port}. `refused`: no process listens there, or a "
        "firewall turns it away; no answer: a firewall drops it, or that is not the address that peers reach."
    )


def _address(met_at: str) -> str:
    return (
        f"Look for what changes MASTER_ADDR or MASTER_PORT in that rank: holdfast set {met_at} for every rank "
        f"({_SETTERS})."
    )


def _had_come(reading: Reading) -> bool:
    """Return whether the rank had joined the group: its log reports the loss of an existing connection, because rank 0
    with the store ended.
    """
    return reading.best is not None and reading.best.phrase in (Phrase.PEER_LOST, Phrase.NETWORK_LOST)


def _failed(reading: Reading) -> bool:
    """Return whether the rank failed: its exit is not 0, or, without a known exit, its log reports a failed start."""
    ended = reading.worker.exit
    return reading.said.meeting is not None if ended is None else not ended.ok


def _tried(reading: Reading) -> tuple[UnreachedPeer, ...]:
    return reading.said.meeting.tried if reading.said.meeting is not None else ()


def _why(word: FailedRendezvous) -> str:
    why = next((each.why for each in word.tried if each.why), "")
    if why:
        return f" ({why})"
    return f" (no answer for {sentences.seconds(word.waited_s)})" if word.waited_s else ""


def _last(readings: Sequence[Reading], rank: int) -> str:
    last = next((reading.last_line for reading in readings if reading.worker.rank == rank), None)
    if all(reading.worker.rank != rank for reading in readings):
        return "has no log here"
    return f"wrote last: {sentences.one_line(last.text, 120)}" if last is not None and last.text else "wrote nothing"


def _apply(found: _Missing, diagnosis: Diagnosis, evidence: AttemptEvidence, readings: Sequence[Reading]) -> None:
    """Change the diagnosis so that it explains the failed start of the group by the missing ranks."""
    ranks = found.ranks
    every = len(ranks) == len(readings)
    worker = next((reading.worker for reading in readings if reading.worker.rank == ranks[0]), WorkerEvidence())
    ended = worker.exit
    own = ended is not None and not ended.ok and not ended.after_stop
    if diagnosis.cause is not None and diagnosis.worker is not None and diagnosis.worker.rank != ranks[0]:
        text = sentences.one_line(diagnosis.cause.line.text, 300)
        diagnosis.evidence.insert(0, Evidence(kind=EvidenceKind.LOG, text=text, source=diagnosis.cause.line.source))
    literal = any(":" in each.host for reading in readings for each in _tried(reading))
    if diagnosis.phrase in _CONSEQUENCES or (diagnosis.phrase == Phrase.DNS_FAILED and literal):
        diagnosis.phrase = Phrase.RENDEZVOUS_TIMEOUT
    node = f" on {worker.node}" if worker.node and evidence.addresses and not every else ""
    diagnosis.reason = found.reason.replace(f"rank {ranks[0]} ", f"rank {ranks[0]}{node} ", 1) if node else found.reason
    if diagnosis.cause is not None:
        diagnosis.line = quoted_line(diagnosis.cause.line)
        diagnosis.line_wording = diagnosis.wording.id if diagnosis.wording is not None else ""
    diagnosis.solution, diagnosis.remark, diagnosis.wording, diagnosis.cause, diagnosis.rule = (
        found.solution,
        "",
        None,
        None,
        "",
    )
    diagnosis.worker, diagnosis.exit = worker, ended if own and not every else None
    diagnosis.rank = None if every else ranks[0]
    diagnosis.original = diagnosis.original if own else Original()
    diagnosis.also = [named(rank, evidence) for rank in (ranks if every else ranks[1:])[:_MOST_ALSO]]
    failed = (each.worker for each in readings if _failed(each))
    diagnosis.collateral = tuple(sorted(each.rank for each in failed if each.rank not in ranks))
    diagnosis.confidence = found.confidence if len(ranks) == 1 else min(found.confidence, LIKELY)
    diagnosis.blame = found.blame or diagnosis.blame


CONFIDENCE = 0.8
#: Maximum number of nodes that the report's reason names.
NAMED = 6
_UNREACHED = frozenset(
    {Phrase.RENDEZVOUS_TIMEOUT, Phrase.RENDEZVOUS_FAILED, Phrase.NETWORK_UNREACHABLE, Phrase.PEER_LOST}
)
_TRIED = Lazy(
    r"(?:failed to connect to|trying to connect to)\s+(?:any network address of\s+)?"
    r"(?:\[(?P<name>[^\]\s]{1,253})\]:|\((?P<pair>[^\s,)]{1,253}),\s*|(?P<bare>[\w.-]{1,253}):)(?P<port>\d{1,5})\b"
    r"(?:[^(]{0,40}\((?:errno|system error): \d+ - (?P<why>[^).]{1,80}))?"
)

#: An address: host and port.
Place = tuple[str, str]


def unreached(diagnosis: Diagnosis, evidence: AttemptEvidence, readings: Sequence[Reading]) -> Diagnosis | None:
    """Return a diagnosis that names all ranks that did not reach rank 0's port, if the gang has several nodes.

    None if no rank reports this, or if the gang has one node.
    """
    nodes = dict.fromkeys(reading.worker.node for reading in readings)
    if len(nodes) < 2 or diagnosis.phrase not in _UNREACHED:
        return None
    tried = {reading.worker.rank: (reading, places) for reading in readings if (places := dict(_tried_places(reading)))}
    counted = Counter(place for _, places in tried.values() for place in places)
    if not counted:
        return None
    (host, port), _ = counted.most_common(1)[0]
    if evidence.meeting and f"{host}:{port}" != evidence.meeting:
        return None  # The address is not the one that holdfast set for rank 0. `unmet` explains such a failure.
    by_node: dict[str, list[int]] = {}
    why = ""
    for rank, (reading, places) in tried.items():
        if (host, port) in places:
            by_node.setdefault(reading.worker.node, []).append(rank)
            why = why or places[host, port]
    first, _ = tried[next(iter(by_node.values()))[0]]
    where = next((node for node, address in evidence.addresses.items() if address == host), "")
    who = [f"{sentences.ranks(ranks)} on {_reached(node, evidence.addresses)}" for node, ranks in by_node.items()]
    more = f" and those of {len(who) - NAMED} more nodes" if len(who) > NAMED else ""
    port_of = f"port {port} of {host}" + (f", which is {where}" if where else "")
    diagnosis.reason = f"{', '.join(who[:NAMED])}{more} never reached rank 0's port ({port_of})"
    if why:
        diagnosis.reason += f": {why}"
    if others := [node for node in nodes if node not in by_node]:
        diagnosis.reason += f"; the ranks on {_named(others)} say nothing of it"
    nodes_out = _named(list(by_node))
    diagnosis.solution = (
        f"Test the link on {nodes_out}: nc -vz {host} {port}. `refused`: no process listens there, or a firewall turns "
        "it away; no answer: a firewall drops it, or the address is not the one that peers reach (--local-addr). "
        "--port-range A-B keeps the port within what a firewall lets through."
    )
    diagnosis.remark = ""
    worker = first.worker
    diagnosis.worker, diagnosis.exit, diagnosis.rank = worker, worker.exit, worker.rank
    if worker.exit is not None and worker.exit.after_stop:
        diagnosis.exit = None  # the stop hit the rank while it still tried to connect, so its exit is no evidence
    diagnosis.cause = next(clue for clue in _clues(first) if _TRIED.search(clue.line.text))
    diagnosis.wording, diagnosis.rule = None, ""
    named = {rank for ranks in by_node.values() for rank in ranks}
    ended = (each.worker for each in readings if each.worker.exit is not None and not each.worker.exit.ok)
    diagnosis.collateral = tuple(sorted(each.rank for each in ended if each.rank not in named))
    diagnosis.confidence = max(diagnosis.confidence, CONFIDENCE)
    return diagnosis


def _tried_places(reading: Reading) -> Iterator[tuple[Place, str]]:
    for clue in _clues(reading):
        if found := _TRIED.search(clue.line.text):
            host = (found["name"] or found["pair"] or found["bare"]).removeprefix("::ffff:")
            yield (host, found["port"]), found["why"] or ""


def _clues(reading: Reading) -> Iterator[Clue]:
    yield from reading.said.weaker
    yield from reading.said.clues


def _reached(node: str, addresses: Mapping[str, str]) -> str:
    return with_address(node, addresses.get(node, ""))


def _named(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
