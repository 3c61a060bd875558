"""Explains a multi-node gang whose group never formed: names the ranks that did not reach rank 0's port, and a command
to test the link.

torch prints the address and the port when it gives up (`timed out … while trying to connect to`), and when the other
side refuses or there is no route (`failed to connect to … (errno: 113 - No route to host)`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from holdfast.explain import sentences
from holdfast.explain.log_reader import Reading
from holdfast.explain.report_draft import ReportDraft
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.human_format import with_address
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue

CONFIDENCE = 0.8
#: Limit on the nodes that the reason names.
NAMED = 6
_MEETING = frozenset(
    {Phrase.RENDEZVOUS_TIMEOUT, Phrase.RENDEZVOUS_FAILED, Phrase.NETWORK_UNREACHABLE, Phrase.PEER_LOST}
)
_TRIED = Lazy(
    r"(?:failed to connect to|trying to connect to)\s+(?:any network address of\s+)?"
    r"(?:\[(?P<name>[^\]\s]{1,253})\]:|\((?P<pair>[^\s,)]{1,253}),\s*|(?P<bare>[\w.-]{1,253}):)(?P<port>\d{1,5})\b"
    r"(?:[^(]{0,40}\((?:errno|system error): \d+ - (?P<why>[^).]{1,80}))?"
)

#: Host and port.
Place = tuple[str, str]


def unreached(draft: ReportDraft, evidence: AttemptEvidence, readings: Sequence[Reading]) -> ReportDraft | None:
    """Return the draft with all ranks that did not reach rank 0's port, if the gang has several nodes.

    None if no rank reports this, or if the gang has one node.
    """
    nodes = dict.fromkeys(reading.worker.node for reading in readings)
    if len(nodes) < 2 or draft.phrase not in _MEETING:
        return None
    tried = {reading.worker.rank: (reading, places) for reading in readings if (places := dict(_tried(reading)))}
    counted = Counter(place for _, places in tried.values() for place in places)
    if not counted:
        return None
    (host, port), _ = counted.most_common(1)[0]
    if evidence.meeting and f"{host}:{port}" != evidence.meeting:
        return None  # not the address that holdfast set, so another module explains it
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
    draft.reason = f"{', '.join(who[:NAMED])}{more} never reached rank 0's port ({port_of})"
    if why:
        draft.reason += f": {why}"
    if others := [node for node in nodes if node not in by_node]:
        draft.reason += f"; the ranks on {_named(others)} say nothing of it"
    nodes_out = _named(list(by_node))
    draft.solution = (
        f"Test the link on {nodes_out}: nc -vz {host} {port}. `refused`: no process listens there, or a firewall turns "
        "it away; no answer: a firewall drops it, or the address is not the one that peers reach (--local-addr). "
        "--port-range A-B keeps the port within what a firewall lets through."
    )
    draft.remark = ""
    worker = first.worker
    draft.worker, draft.exit, draft.rank = worker, worker.exit, worker.rank
    if worker.exit is not None and worker.exit.after_stop:
        draft.exit = None  # the stop interrupted it while it still tried, so its exit tells nothing
    draft.cause = next(clue for clue in _clues(first) if _TRIED.search(clue.line.text))
    draft.wording, draft.rule = None, ""
    named = {rank for ranks in by_node.values() for rank in ranks}
    ended = (each.worker for each in readings if each.worker.exit is not None and not each.worker.exit.ok)
    draft.collateral = tuple(sorted(each.rank for each in ended if each.rank not in named))
    draft.confidence = max(draft.confidence, CONFIDENCE)
    return draft


def _tried(reading: Reading) -> Iterator[tuple[Place, str]]:
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
