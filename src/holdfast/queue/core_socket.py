"""The core's socket: accepts the user's commands, reads one request a line, and sends the answers."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from functools import partial

from holdfast.queue.core_messages import LINE_BYTES, CoreAnswer, Request, line_of, request_of
from holdfast.reactor import Reactor
from holdfast.untrusted import Malformed

#: Most commands that may be connected. A further one waits in the kernel's queue.
CONNECTIONS = 256


class _Client:
    """One connected command. It may send several requests."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.read = bytearray()
        self.unsent = bytearray()


class CoreSocket:
    """The listening socket and its connections. `take` carries out a request; its second argument sends the answer."""

    def __init__(
        self,
        listener: socket.socket,
        reactor: Reactor,
        take: Callable[[Request, Callable[[CoreAnswer], None]], None],
    ) -> None:
        self._listener = listener
        self._reactor = reactor
        self._take = take
        self._clients: dict[int, _Client] = {}
        reactor.watch(listener.fileno(), self._accept)

    @property
    def connected(self) -> bool:
        return bool(self._clients)

    def _accept(self, fd: int, now: float) -> None:
        while len(self._clients) < CONNECTIONS:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in (0, os.getuid()):
                connection.close()
                continue
            connection.setblocking(False)
            client = self._clients[connection.fileno()] = _Client(connection)
            self._reactor.watch(connection.fileno(), partial(self._ready, client))
        self._reactor.forget(fd)  # `_drop` watches it again

    def _ready(self, client: _Client, fd: int, now: float) -> None:
        self._write(client)
        try:
            data = client.socket.recv(LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        client.read += data
        while (end := client.read.find(b"\n")) >= 0:
            line = bytes(client.read[:end])
            del client.read[: end + 1]
            self._request(client, line)
        if len(client.read) > LINE_BYTES:
            self._send(client, CoreAnswer(ok=False, message=f"a request has at most {LINE_BYTES} bytes"))
            self._drop(client)

    def _request(self, client: _Client, line: bytes) -> None:
        try:
            request = request_of(line)
        except Malformed as error:
            self._send(client, CoreAnswer(ok=False, message=f"this core does not know the request: {error}"))
            return
        self._take(request, partial(self._send, client))

    def _send(self, client: _Client, answer: CoreAnswer) -> None:
        if self._clients.get(client.socket.fileno()) is client:
            client.unsent += line_of(answer)
            self._write(client)

    def _write(self, client: _Client) -> None:
        if not client.unsent:
            return
        try:
            del client.unsent[: client.socket.send(client.unsent)]
        except BlockingIOError:
            pass  # the rest is sent when the command has read
        except OSError:
            self._drop(client)
            return
        watch = self._reactor.watched(client.socket.fileno())
        if watch is not None:
            watch.write_too(bool(client.unsent))

    def _drop(self, client: _Client) -> None:
        fd = client.socket.fileno()
        if self._clients.pop(fd, None) is None:
            return
        self._reactor.forget(fd)
        client.socket.close()
        if self._reactor.watched(self._listener.fileno()) is None:
            self._reactor.watch(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Send what is left of the answers, and close all connections. The listening socket stays open."""
        for client in tuple(self._clients.values()):
            client.socket.settimeout(1.0)
            try:
                client.socket.sendall(client.unsent)
            except OSError:
                pass  # the command has gone
            self._drop(client)
        self._reactor.forget(self._listener.fileno())
