"""The socket on which anybody of this user reports faults: JSON lines in, one JSON answer a line out.

The socket is the user's own (0600), and a peer of another user is told so and closed. What is refused is counted by
reason; a peer cannot make us keep more than one line's length, however much it sends.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.model.faults import FaultEvent
from holdfast.observe.devices.public import LONGEST, Refused, in_catalogue, read_line

MOST_PEERS = 64
_BLOCK = 65_536
_ANSWERS_MOST = 65_536


class Inbox:
    """Listens at `path`. `fileno()` is readable when `take` has something to do. Never raises on what peers send."""

    def __init__(self, path: Path, *, known: Callable[[str], bool] = in_catalogue) -> None:
        self.path = path
        self.missing = ""
        self.refused: Counter[str] = Counter()
        self._known = known
        self._peers: dict[int, _Peer] = {}
        self._selector = selectors.EpollSelector()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        # The mode must be right from the first moment: the umask sets it, a later chmod would leave a gap.
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(16)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        return self._selector.fileno()

    def take(self, now: float) -> list[FaultEvent]:
        """Events that have come and are believed. Reads at most one block from each peer: a flood waits its turn."""
        events: list[FaultEvent] = []
        for key, _ in self._selector.select(0):
            if key.fd == self._listener.fileno():
                self._accept()
            else:
                events += self._read(self._peers[key.fd], now)
        return events

    def close(self) -> None:
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._selector.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # the peer was gone before we came
        connection.setblocking(False)
        who = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if who != os.geteuid():
            self._refuse_peer(connection, "another user", f"faults are reported by uid {os.geteuid()} only, not {who}")
        elif len(self._peers) >= MOST_PEERS:
            self._refuse_peer(connection, "too many peers", f"{MOST_PEERS} peers are connected already")
        else:
            self._peers[connection.fileno()] = _Peer(connection)
            self._selector.register(connection, selectors.EVENT_READ)

    def _refuse_peer(self, connection: socket.socket, reason: str, words: str) -> None:
        self.refused[reason] += 1
        try:
            connection.send(_answer(False, words))
        except OSError:
            pass  # it is told or it is gone; either way it is closed
        connection.close()

    def _read(self, peer: _Peer, now: float) -> list[FaultEvent]:
        try:
            block = peer.connection.recv(_BLOCK)
        except BlockingIOError:
            return []
        except OSError:
            block = b""
        if not block:
            self._drop(peer)
            return []
        events: list[FaultEvent] = []
        answers = b""
        for line in peer.lines(block):
            if line is None:
                self.refused["too long"] += 1
                answers += _answer(False, f"a line of more than {LONGEST} bytes was skipped")
                continue
            if not line.strip():
                continue
            try:
                found = read_line(line, now, known=self._known)
            except Refused as error:
                self.refused[_kind(str(error))] += 1
                answers += _answer(False, str(error))
            else:
                events += found
                answers += _answer(True, "")
        try:
            # A peer that does not read its answers does not get them; it cannot make us keep them.
            peer.connection.send(answers[:_ANSWERS_MOST])
        except OSError:
            pass
        return events

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.connection)
        del self._peers[peer.connection.fileno()]
        peer.connection.close()


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""
        self._skipping = False

    def lines(self, block: bytes) -> list[bytes | None]:
        """Complete lines; None stands for one that was too long to keep."""
        out: list[bytes | None] = []
        rows = (self._rest + block).split(b"\n")
        self._rest = rows.pop()
        for row in rows:
            if self._skipping:
                self._skipping = False
                continue
            out.append(row if len(row) <= LONGEST else None)
        if self._skipping:
            self._rest = b""
        elif len(self._rest) > LONGEST:
            self._rest, self._skipping = b"", True
            out.append(None)
        return out


def _answer(taken: bool, why: str) -> bytes:
    return msgspec.json.encode({"ok": taken} if taken else {"ok": taken, "error": why}) + b"\n"


def _kind(why: str) -> str:
    for words in ("not JSON", "in the future", "days old", "in no catalogue", "devices are concerned", "device's name"):
        if words in why:
            return words
    return "malformed"
