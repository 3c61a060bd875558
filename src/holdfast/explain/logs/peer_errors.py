"""Decides whether a line is about the worker itself or about a lost peer, and which peer it names.

The gang calls this module at the moment of an exit, before the catalogue is loaded. So the module has separate
patterns, for gloo, NCCL, c10d's stores and watchdogs, HCCL, MPI, Ray and the launchers.
"""

from __future__ import annotations

from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import WorkerExit

_PEER = Lazy(
    r"""(?x)Connection\ closed\ by\ peer|Connection\ reset\ by\ peer|Broken\ pipe|Connection\ was\ likely\ closed
    |socketPollConnect|Socket\ closed|Connection\ closed\ by\ (?:remote|localRank|rank)|closed\ by\ remote\ peer
    |[Rr]emote\ (?:process|worker|rank|peer)\ (?:has\ )?(?:exited|crash|died|failed|terminated|closed)
    |ncclRemoteError|NCCL\ error:\ remote\ process|a\ call\ failed\ possibly\ due\ to\ a\ network\ error|ChildFailedError
    |[Hh]eartbeat\ (?:monitor\ )?(?:lost|timed?\ ?out|missed|of\ .{1,40}\ lost)|[Ll]ost\ (?:connection|contact)\ (?:to|with)
    |recvValue\ failed|sendBytes\ failed|recvBytes\ failed|Failed\ to\ recv,\ got\ 0\ bytes|[Ff]ailed\ to\ check\ the\ ["']should\ dump["']
    |TCPStore.{0,120}(?:closed|reset|[Bb]roken|failed)|DistStoreError|DistNetworkError.{0,200}(?:reset|closed|[Bb]roken)
    |Observed\ flight\ recorder\ dump\ signal|Received\ a\ (?:global\ )?(?:timeout|dump)\ signal|another\ rank|other\ rank
    |[Tt]imed\ out\ (?:waiting\ )?\d+\s?ms\ (?:for|waiting)|Watchdog\ caught\ collective|collective\ operation\ timeout
    |ProcessGroup(?:NCCL|Gloo|HCCL)?.{0,160}(?:abort|terminat|timed?\ ?out)|NCCL\ communicator\ was\ aborted|ncclCommAbort
    |Some\ NCCL\ operations\ have\ failed\ or\ timed\ out|taking\ the\ entire\ process\ down|peer\ (?:is\ )?(?:gone|lost|died|exited|disconnected)
    |ActorDiedError|ActorUnavailableError|(?:The\ actor|owner)\ (?:is\ )?(?:dead|died)|RayTaskError\(RayChannelError
    |[Rr]ank\ \d+\ (?:did\ not|has\ not|failed|died|exited|is\ not\ respon|closed|timed\ out|went\ away|missing)
    |no\ (?:answer|response|reply)\ from\ (?:rank\ )?\d+|(?:from|by)\ \[?rank\ \d+\]?.{0,40}(?:abort|fail|closed|error)
    |MPI_ABORT|EI0002|EI0006|HCCL.{0,80}(?:timeout|time\ out)|notify\ wait\ timeout|remote\ rank
    |client\ socket\ has\ (?:timed\ out\ after\ \d+\ ?ms\ while\ trying\ to|failed\ to)\ connect
    |EngineDeadError|EngineCore\ encountered\ an\ issue|PeerLost
    """,  # noqa: E501 - an alternative stays on its line
)

_EDGES = Lazy(
    r"""(?x)(?:from|by|with|to|of|waiting\ (?:for|on))\ \[?(?:global\ |remote\ |peer\ |local)?[Rr]ank[:\s=]*(?P<a>\d{1,9})
    |[Rr]ank\ (?P<b>\d{1,9})\ (?:did\ not|has\ not|failed|died|exited|is\ not\ respon|closed|timed\ out|went\ away|is\ missing)
    |remote[ _]?[Rr]ank[:\s=\[(]*(?P<c>\d{1,9})|peer[ _]?[Rr]ank[:\s=\[(]*(?P<d>\d{1,9})
    |no\ (?:answer|response|reply)\ from\ (?:rank\ )?(?P<e>\d{1,9})|missing\ (?:ranks?|from):?\ \[?(?P<f>\d{1,9})
    |[Rr]anks?\ (?:that\ )?(?:have\ )?not\ joined:?\ \[?(?P<g>\d{1,9})|not\ (?:called|reached).{0,40}[Rr]ank:?\ \[?(?P<h>\d{1,9})
    """,  # noqa: E501 - an alternative stays on its line
)

_LAUNCHER = Lazy(r"ChildFailedError|torch[./]distributed[./](?:elastic|launcher|run)|SignalException")

_LAST_EXCEPTION = Lazy(
    r"^(?:\[[^\]\n]{1,24}\]:\s?)*(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure|Fault))(?::|$)"
)


def speaks_of_peers(text: str) -> bool:
    """Return whether the text (a line, or the end of a log) reports that a peer was lost or did not answer."""
    return _PEER.search(text) is not None


def blamed_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks that the text blames, in the order of the text: (3,) for `Connection closed by rank 3`."""
    found: list[int] = []
    for match in _EDGES.finditer(text):
        rank = next(int(group) for group in match.groups() if group is not None)
        if rank not in found:
            found.append(rank)
    return tuple(found)


def last_exception(text: str) -> str:
    """Return the last line of a text that names an exception, with up to 11 lines after it; empty if no line does."""
    lines = text.splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if (match := _LAST_EXCEPTION.match(lines[index])) and not _LAUNCHER.search(match["type"]):
            return "\n".join(lines[index : index + 12])
    return ""


def is_wordless(ended: WorkerExit) -> bool:
    """Return whether the exit's status has no known meaning, and the program wrote no line.

    A program exits like this if it handles a lost peer with `os._exit(1)`. It may then exit before the peer, which is
    still printing its exception. A contract code (200–219) has a known meaning.
    """
    code = ended.exit_code
    return bool(code) and not 200 <= (code or 0) <= 219 and not ended.last_words.strip() and not ended.error_file


def first_hand(ended: WorkerExit) -> bool:
    """Return whether this exit is first-hand: the worker failed by itself, and not because it lost a peer.

    The gang calls this at the moment of an exit, before anything is stopped. A first-hand exit stops the gang at once.
    After any other exit the gang waits a moment for a peer that failed by itself. A signal is first-hand, except an
    abort by a watchdog after another rank's error. An exit without any output is first-hand: it blames no other rank.
    """
    if ended.after_stop or ended.ok:
        return False
    text = f"{ended.last_words[-8192:]}\n{ended.error_file[:16384]}"
    match ended.signal:
        case None:
            pass
        case 6:  # SIGABRT: a watchdog aborts its own process after it has lost a peer
            return not speaks_of_peers(text)
        case _:
            return True
    if ended.exit_code is None:
        return True
    if last := last_exception(text):
        return not speaks_of_peers(last)
    return not speaks_of_peers(text[-4096:])
