"""The socket to which processes of this user report faults. It reads JSON lines, and answers each with one JSON line.

Only this user may use the socket (mode 0600); a peer of another user is refused and disconnected. Refused lines are
counted by reason. At most one line per peer is buffered, so a peer that sends much does not block the others.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.model.faults import FaultEvent
from holdfast.observe.devices.reported_faults import LONGEST, FaultRejected, in_catalogue, kind_of, read_line

MOST_PEERS = 64
#: A call of `take` ends after this many seconds, because the workers' output and exits wait meanwhile.
TURN_S = 0.05
_BLOCK = 16_384
_ANSWERS_MOST = 65_536
_WAITING_MOST = 128
_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class FaultSocket:
    """Listens at `path`. `fileno()`: readable when `take` has work. Wrong lines do not make `take` raise.

    `known`: whether a fault code is known. Lines with other codes are refused.
    """

    def __init__(self, path: Path, *, known: Callable[[str], bool] = in_catalogue, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or Clock()
        self.missing = ""
        self.refused: Counter[str] = Counter()
        self._known = known
        #: Fd → peer, the peer that was read longest ago first.
        self._peers: dict[int, _Peer] = {}
        self._selector = selectors.EpollSelector()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        # Set the mode by the umask, because before a chmod the socket would be open to other users.
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(_WAITING_MOST)
        self._selector.register(self._listener, selectors.EVENT_READ)
        #: A spare descriptor. With too many open files this process closes it for a moment, to accept and refuse a
        #: peer.
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._selector.fileno()

    def take(self, now: float) -> list[FaultEvent]:
        """Return the newly accepted events, from the peer that was read longest ago first.

        A call takes about `TURN_S` seconds at most.
        """
        events: list[FaultEvent] = []
        ready = {key.fd for key, _ in self._selector.select(0)}
        end = self._clock.now() + TURN_S
        for fd in [fd for fd in self._peers if fd in ready]:
            events += self._read(fd, now)
            if self._clock.now() >= end:
                break
        # Accept new peers even if the others took long, so that a flood of lines does not keep new peers waiting.
        if self._listener.fileno() in ready:
            end = max(end, self._clock.now() + TURN_S / 2)
            while self._clock.now() < end and self._accept(events, now):
                pass
        return events

    def close(self) -> None:
        for fd in list(self._peers):
            self._drop(fd)
        self._selector.close()
        self._listener.close()
        if self._spare >= 0:
            os.close(self._spare)
        self.path.unlink(missing_ok=True)

    def _accept(self, events: list[FaultEvent], now: float) -> bool:
        """Accept one peer. Return whether there may be another."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _DESCRIPTORS:
                return self._turn_away()
            return True  # ignore a peer that has already disconnected
        connection.setblocking(False)
        who = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if who != os.geteuid():
            self.refused["another user"] += 1
            self._send_off(connection, f"faults are reported by uid {os.geteuid()} only, not {who}")
            return True
        if len(self._peers) >= MOST_PEERS:
            self._make_room(events, now)
        self._peers[connection.fileno()] = _Peer(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        return True

    def _make_room(self, events: list[FaultEvent], now: float) -> None:
        """Read the remaining lines of the peer that was read longest ago, and disconnect it."""
        fd = next(iter(self._peers))
        before = self._peers[fd]
        while self._peers.get(fd) is before and before.has_more():
            events += self._read(fd, now)
        if self._peers.get(fd) is before:
            if before.unfinished:
                self.refused["unfinished"] += 1
            words = f"{MOST_PEERS} peers are connected, and this one was silent longest: connect again"
            before.send(_answer(False, words))
            self._drop(fd)

    def _turn_away(self) -> bool:
        """Refuse a peer because of too many open files.

        In the queue it would wake the loop again and again.
        """
        if self._spare < 0:
            return False
        os.close(self._spare)
        self._spare = -1
        try:
            connection, _ = self._listener.accept()
            self.refused["too many open files"] += 1
            self._send_off(connection, "too many files are open here: try again later")
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        return True

    def _send_off(self, connection: socket.socket, words: str) -> None:
        try:
            connection.send(_answer(False, words))
        except OSError:
            pass  # ignore a peer that has disconnected or does not read, and close the connection
        connection.close()

    def _read(self, fd: int, now: float) -> list[FaultEvent]:
        peer = self._peers.pop(fd)
        self._peers[fd] = peer
        try:
            block = peer.connection.recv(_BLOCK)
        except BlockingIOError:
            return []
        except OSError:
            block = b""
        # After a disconnect, the last line may be complete without a newline.
        events = self._on_lines(peer, peer.lines(block or b"\n"), now)
        if not block:
            self._drop(fd)
        return events

    def _on_lines(self, peer: _Peer, lines: list[bytes | None], now: float) -> list[FaultEvent]:
        events: list[FaultEvent] = []
        answers: list[bytes] = []
        room = _ANSWERS_MOST
        for line in lines:
            if line is None:
                self.refused["too long"] += 1
                answer = _answer(False, f"a line of more than {LONGEST} bytes was skipped")
            elif not line.strip():
                continue
            else:
                try:
                    events += read_line(line, now, known=self._known)
                    answer = _TAKEN
                except FaultRejected as error:
                    self.refused[kind_of(str(error))] += 1
                    answer = _answer(False, str(error)) if room > 0 else b""
            if room > 0:
                answers.append(answer)
                room -= len(answer)
        peer.send(b"".join(answers))
        return events

    def _drop(self, fd: int) -> None:
        peer = self._peers.pop(fd)
        self._selector.unregister(peer.connection)
        peer.connection.close()


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""
        self._skipping = False
        #: The unsent rest of an answer.
        self._owed = b""

    @property
    def unfinished(self) -> bool:
        """Return whether the peer has sent only a part of a line."""
        return bool(self._rest.strip())

    def has_more(self) -> bool:
        """Return whether the peer has sent bytes that are not read yet, or has disconnected."""
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def send(self, answers: bytes) -> None:
        """Send answers. A peer that does not read loses whole answers, but never gets a part of a line."""
        data = self._owed + answers
        try:
            sent = self.connection.send(data) if data else 0
        except OSError:
            return
        cut = sent > 0 and sent < len(data) and data[sent - 1 : sent] != b"\n"
        if sent:
            self._owed = data[sent : data.index(b"\n", sent) + 1] if cut else b""

    def lines(self, block: bytes) -> list[bytes | None]:
        """Return the complete lines. None stands for a line that was too long."""
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


_TAKEN = _answer(True, "")
