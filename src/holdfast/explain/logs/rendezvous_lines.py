"""Parses a rank's log lines about the start of its group: the address it tried, and the rank it waited for. Pure.

The patterns are for messages of torch: c10d's sockets and store (gloo, NCCL), its store-based barrier, and gloo's full
mesh. A program that uses plain sockets prints no such message, but its traceback shows that it waited for a peer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import WorkerEvidence
from holdfast.model.worker_reading import FailedRendezvous, UnreachedPeer

_ATOMS = (
    "[c10d]", "DistStoreError", "DistNetworkError", "trying to connect", "store based barrier", "ncclUniqueId",
    "Unable to find address for", "did not connect", "did not join", "not joined", "not connected",
)  # fmt: skip
_MOST = 4
#: Number of characters read at the end of a log. A failed start is near the end, since it ended the job.
_MOST_CHARS = 256 * 1024

_TRIED = Lazy(
    r"(?:failed to connect to|trying to connect to|connect/validate to host|addresses of)\s+"
    r"(?:any network address of\s+)?(?:\[(?P<name>[^\]\s]{1,253})\]:|\((?P<pair>[^\s,)]{1,253}),\s*"
    r"|(?P<bare>[\w.:-]{1,253}):)(?P<port>\d{1,5})\b"
    r"(?:[^(\n]{0,60}\((?:errno|system error|gai error): -?\d+ - (?P<why>[^).\n]{1,80}))?"
)
_FOR_S = Lazy(r"timed out after (\d{1,9})ms while trying to connect")
_AWAITS = Lazy(r"wait timeout after (?P<ms>\d{1,9})ms, keys: (?P<key>[^\s,]{1,200})")
_OF_RANK_0 = Lazy(r"retrieving ncclUniqueId from \[(?P<rank>\d{1,6})\]")
_JOINED = Lazy(r"[Tt]imed out after (?P<s>\d{1,6}) seconds waiting for clients\. (?P<joined>\d{1,6})/(?P<of>\d{1,6}) ")
_BARRIER = Lazy(
    r"store based barrier on rank:? ?(?P<rank>\d{1,6})[^\n]{0,200}?world_size=(?P<of>\d{1,6}), "
    r"(?:num_)?workers?_(?:num_)?joined=(?P<joined>\d{1,6})"
)
#: Matches a count of missing peers that the program printed. The count may or may not include the rank itself, so it
#: does not show the world size.
_SHORT = Lazy(
    r"\b(?P<missing>\d{1,6}) of (?P<of>\d{1,6}) (?:peers|ranks|workers|processes|clients|nodes|participants) "
    r"(?:did not|have not|has not|are not|is not) (?:connect|join|come|arrive|register)"
)
_INTERFACE = Lazy(r"(?:Unable to find address for: |find interface |no interface )(?P<name>[\w.@-]{1,32})\b")
_AT = Lazy(r"remote=\[(?:::ffff:)?(?P<host>[^\]\s]{1,64})\]:(?P<port>\d{1,5})\) (?:timed out|returned 0)")
#: The patterns of a Python traceback that ends in a wait for a connection that no peer made or accepted.
_TRACE = "Traceback (most recent call last):"
_GAVE_UP = Lazy(
    r"^(?:[\w.]*\.)?(?:TimeoutError|timeout|ConnectionRefusedError|OSError|ConnectTimeout\w*|Again)\b[^\n]*"
    r"(?i:timed?[ -]?out|refused|no route|temporarily unavailable)",
    re.MULTILINE,
)
_ACCEPTS = Lazy(r"\.accept\(\)|\bin (?:_?accept|get_connection|handle_request)\b|Listener\(")
_CONNECTS = Lazy(r"create_connection\(|\.connect\(|\bin (?:create_connection|connect|SocketClient)\b|\bClient\(")
#: Frames of clients of network services (HTTP, databases). They do not wait for a rank of the job.
_SERVICES = Lazy(
    r"/(?:urllib3?|requests|httpx|httpcore|aiohttp|websockets?|botocore|boto3|s3transfer|huggingface_hub|fsspec|s3fs|gcsfs"
    r"|redis|pymongo|psycopg2?|pymysql|sqlalchemy|kafka|wandb|mlflow|paramiko|grpc)/|urllib/request\.py"
    r"|http/client\.py|/(?:ftplib|smtplib|ssl)\.py"
)
#: Matches words about training work. A connection after such words is not part of the job's start.
_WORKED = Lazy(r"(?i)\b(?:steps?|epoch|iter(?:ation)?|batch)\b\W{0,3}\d")


def meeting_words(worker: WorkerEvidence) -> FailedRendezvous | None:
    """Return the facts in the rank's logs about a failed start of its group; None if no line reports one."""
    said = "\n".join(text for text in _texts(worker) if any(atom in text for atom in _ATOMS))
    if not said:
        return FailedRendezvous(joined=0) if any(_gave_up(text) for text in _texts(worker)) else None
    tried = _places(said)
    waited = _AWAITS.search(said)
    asked = _OF_RANK_0.search(said)
    counted = _JOINED.search(said) or _BARRIER.search(said)
    short = _SHORT.search(said)
    spent = _FOR_S.search(said)
    at = _AT.search(said)
    key = waited["key"] if waited is not None else ""
    device = _INTERFACE.search(said)
    if not (tried or key or counted or asked or device or short):
        return None
    prefix, _, last = key.rpartition("/")
    last = last.rpartition("_")[2] if last.startswith("rank_") else last
    awaits = int(asked["rank"]) if asked is not None else int(last) if last.isdigit() and len(last) < 7 else None
    for_ms = waited["ms"] if waited is not None else spent[1] if spent is not None else "0"
    return FailedRendezvous(
        tried=tuple(UnreachedPeer(host=host, port=port, why=why) for (host, port), why in tried.items()),
        awaits=awaits,
        key=prefix if awaits is not None else key,
        joined=int(counted["joined"]) if counted is not None else _joined(short),
        of=int(counted["of"]) if counted is not None else None,
        at=f"{at['host']}:{at['port']}" if at is not None else "",
        waited_s=int(for_ms) / 1000,
        interface=device["name"] if device is not None else "",
    )


def _gave_up(text: str) -> bool:
    """Return whether the text ends in the traceback of a wait for a peer over a plain socket, at the start of the
    program."""
    before, found, trace = text.rpartition(_TRACE)
    if not found or _GAVE_UP.search(trace) is None or _SERVICES.search(trace) is not None:
        return False
    return _ACCEPTS.search(trace) is not None or (
        _CONNECTS.search(trace) is not None and _WORKED.search(before) is None
    )


def _joined(short: re.Match[str] | None) -> int | None:
    return max(0, int(short["of"]) - int(short["missing"])) if short is not None else None


def _places(said: str) -> dict[tuple[str, str], str]:
    """Return the addresses that the rank tried, each with the system's error.

    Prefer the configured address, which torch prints as `(host, port)`. The resolved address may be wrong, because
    torch may print freed memory (`102.85.0.0:58723`).
    """
    given: dict[tuple[str, str], str] = {}
    resolved: dict[tuple[str, str], str] = {}
    for found in _TRIED.finditer(said):
        host = (found["name"] or found["pair"] or found["bare"]).removeprefix("::ffff:")
        known = given if found["pair"] else resolved
        if len(known) < _MOST or (host, found["port"]) in known:
            known[host, found["port"]] = known.get((host, found["port"])) or found["why"] or ""
    why = next((words for words in resolved.values() if words), "")
    return {place: words or why for place, words in given.items()} if given else resolved


def _texts(worker: WorkerEvidence) -> Iterator[str]:
    for excerpt in (worker.stderr, worker.log, worker.stdout):
        if excerpt is not None:
            yield from excerpt.cuttings
            yield excerpt.text[-_MOST_CHARS:]
    if worker.exit is not None and worker.exit.last_words and worker.stderr is None:
        yield worker.exit.last_words[-_MOST_CHARS:]
