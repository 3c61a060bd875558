"""A TCP proxy for bad networks: `proxy.py LISTEN:PORT TO:PORT`, then one word a line on stdin, each answered with `ok`.

- pass: hand on what comes.                      - delay S: the same, S seconds later, in order.
- halve: in two halves, the second 20 ms later, so that the receiver never finds a whole frame.
- stall: take no more bytes; connections stay open (a full queue, a frozen peer).
- cut: reset every connection now; later ones pass.
- refuse: reset every connection now, and later ones at once.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import struct
import sys
import time

HALF_S = 0.02
CHUNK = 65536


class ForwardingProxy:
    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        self.to = to
        self.selector = selectors.DefaultSelector()
        self.server = socket.create_server(listen, backlog=1024)
        self.selector.register(self.server, selectors.EVENT_READ, "server")
        self.selector.register(sys.stdin, selectors.EVENT_READ, "word")
        self.mode, self.delay_s = "pass", 0.0
        self.due: list[tuple[float, int, socket.socket, bytes]] = []
        self.numbers = itertools.count()
        self.peer: dict[socket.socket, socket.socket] = {}
        #: When the last piece that waits for a socket is sent: nothing may overtake it.
        self.latest: dict[socket.socket, float] = {}

    def run(self) -> None:
        print("ok", flush=True)
        while True:
            wait = None if not self.due else max(0.0, self.due[0][0] - time.monotonic())
            for key, _ in self.selector.select(wait):
                match key.data:
                    case "word":
                        self.word()
                    case "server":
                        self.accept()
                    case _:
                        assert isinstance(key.fileobj, socket.socket)
                        if key.fileobj in self.peer:  # else it was closed in this very round
                            self.carry(key.fileobj)
            while self.due and self.due[0][0] <= time.monotonic():
                _, _, go, piece = heapq.heappop(self.due)
                self.send(go, piece)

    def word(self) -> None:
        line = sys.stdin.readline()
        if not line:
            raise SystemExit
        word, *more = line.split()
        was = self.mode
        self.mode, self.delay_s = word, float(more[0]) if more else 0.0
        if word in ("cut", "refuse"):
            for one in list(self.peer):
                self.reset(one)
        if word == "cut":
            self.mode = "pass"
        if (self.mode == "stall") != (was == "stall"):
            for one in self.peer:
                if self.mode != "stall":
                    self.selector.register(one, selectors.EVENT_READ, "stream")
                elif one in self.selector.get_map():  # else its other end has closed
                    self.selector.unregister(one)
        print("ok", flush=True)

    def accept(self) -> None:
        come, _ = self.server.accept()
        if self.mode == "refuse":
            return hard(come)
        try:
            go = socket.create_connection(self.to, timeout=90)
        except OSError:
            return hard(come)
        self.peer[come], self.peer[go] = go, come
        for one in (come, go):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.mode != "stall":
                self.selector.register(one, selectors.EVENT_READ, "stream")
        return None

    def carry(self, come: socket.socket) -> None:
        go = self.peer[come]
        try:
            piece = come.recv(CHUNK)
        except OSError:
            return self.reset(come)
        now = time.monotonic()
        if self.mode == "halve" and len(piece) > 1:
            middle = len(piece) // 2
            self.later(now, go, piece[:middle])
            return self.later(now + HALF_S, go, piece[middle:])
        self.later(now + self.delay_s, go, piece)
        if not piece:
            self.selector.unregister(come)
        return None

    def later(self, at: float, go: socket.socket, piece: bytes) -> None:
        at = self.latest[go] = max(at, self.latest.get(go, 0.0))
        heapq.heappush(self.due, (at, next(self.numbers), go, piece))

    def send(self, go: socket.socket, piece: bytes) -> None:
        if go not in self.peer:
            return
        try:
            if piece:
                go.sendall(piece)
            else:
                go.shutdown(socket.SHUT_WR)
        except OSError:
            self.reset(go)

    def reset(self, one: socket.socket) -> None:
        for end in (one, self.peer.get(one)):
            if end is not None and end in self.peer:
                del self.peer[end]
                self.latest.pop(end, None)
                if end in self.selector.get_map():
                    self.selector.unregister(end)
                hard(end)


def hard(end: socket.socket) -> None:
    """Close with a reset."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    ForwardingProxy(host_and_port(sys.argv[1]), host_and_port(sys.argv[2])).run()
