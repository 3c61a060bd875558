"""The supervisor's control socket for other holdfast commands, such as `stop`.

The socket is a Unix socket in the job's directory. A client sends one line of JSON and gets one line back. Only root
and the user who runs the job may use it: the directory has mode 0700, the socket has mode 0600, and the supervisor
checks the peer's credentials. A malformed line gets an example of a valid one as the answer. No client can block the
owner.
"""

from __future__ import annotations

import _socket  # `socket` builds large enums, which would delay the start
import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.model.codec import encode
from holdfast.reactor import Reactor
from holdfast.untrusted import Malformed, json_as
from holdfast.wire.fault_news import SOCKET_NAME, FaultsLine

LINE_BYTES = 64 * 1024
#: Maximum number of open connections. One more client closes the connection that has been silent longest, so that
#: `holdfast stop` can always connect.
CONNECTIONS = 16

#: Maximum number of clients that the kernel queues until they are accepted.
WAITING = 128


class StopLine(msgspec.Struct, frozen=True, tag="stop", tag_field="type"):
    """The request line that `holdfast stop` sends."""

    reason: str
    solution: str = ""
    who: str = ""
    phrase: str = ""
    code: int | None = None


Line = StopLine | FaultsLine


class Reply(msgspec.Struct, frozen=True):
    """The answer to a client's request."""

    ok: bool
    message: str


class Control:
    """The listening control socket and its connections."""

    def __init__(self, job_dir: Path, reactor: Reactor, take: Callable[[Line], Reply]) -> None:
        """Listen in the directory `job_dir`.

        `take` answers each request. Raises OSError if no socket can be bound there.
        """
        self._reactor = reactor
        self._take = take
        #: Descriptor → a client's socket and the bytes from it. The client that has been silent longest comes first.
        self._clients: dict[int, tuple[_socket.socket, bytearray]] = {}
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._path = job_dir / SOCKET_NAME
        directory = os.open(job_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            # A socket path may have at most 107 bytes, and the job directory's path may be longer. So bind through
            # /proc/self/fd.
            self._listener.bind(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
        except OSError:
            self._listener.close()
            raise
        finally:
            os.close(directory)
        self._path.chmod(0o600)
        self._listener.listen(WAITING)
        reactor.watch(self._listener.fileno(), self._accept)

    def _accept(self, fd: int, now: float) -> None:
        """Accept up to `CONNECTIONS` new clients. Then the reactor handles workers' exits and output."""
        for _ in range(CONNECTIONS):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Accept one client. Return whether another may be waiting.

        If this process has no free descriptor, close the client that has been silent longest.
        """
        try:
            accepted, _ = self._listener._accept()  # type: ignore[attr-defined]  # `socket.accept` uses it; not in stubs
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self._clients:
                self._make_room()
            return False  # the client waits in the kernel's queue until the reactor's next turn
        client = _socket.socket(fileno=accepted)
        credentials = client.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in (0, os.getuid()):
            client.close()
            return True
        if len(self._clients) >= CONNECTIONS:
            self._make_room()
        client.setblocking(False)
        self._clients[client.fileno()] = (client, bytearray())
        self._reactor.watch(client.fileno(), lambda fd, now: self._read(fd))
        return True

    def _make_room(self) -> None:
        """Close the client that has been silent longest. First answer its request, if it has sent one."""
        fd = next(iter(self._clients))
        before = self._clients[fd]
        self._read(fd)
        if self._clients.get(fd) is before:
            why = f"{CONNECTIONS} clients are connected, and this one was silent longest: connect again"
            self._send(before[0], Reply(False, why))
            self._drop(fd)

    def _read(self, fd: int) -> None:
        # This client is active now, so move it to the end of the dictionary.
        client, buffer = self._clients[fd] = self._clients.pop(fd)
        try:
            data = client.recv(LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer += data
        line, newline, _ = buffer.partition(b"\n")
        if newline or len(buffer) > LINE_BYTES or (not data and line):
            self._answer(client, bytes(line))
        if newline or not data or len(buffer) > LINE_BYTES:
            self._drop(fd)

    def _answer(self, client: _socket.socket, line: bytes) -> None:
        try:
            reply = self._take(json_as(line, Line, most_bytes=2 * LINE_BYTES))
        except Malformed as error:
            reply = Reply(False, f'expected one line like {{"type":"stop","reason":"TEXT"}}: {error}')
        self._send(client, reply)

    def _send(self, client: _socket.socket, reply: Reply) -> None:
        try:
            client.send(encode(reply) + b"\n")
        except OSError:
            pass  # ignore the error: the client disconnected before the answer, but its request was carried out

    def _drop(self, fd: int) -> None:
        client, _ = self._clients.pop(fd)
        self._reactor.forget(fd)
        client.close()

    def close(self) -> None:
        for fd in list(self._clients):
            self._drop(fd)
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        self._path.unlink(missing_ok=True)
