"""Servers and ports on localhost for the lab's programs: a server that answers like one in trouble, and ports in
several states."""

from __future__ import annotations

import http.server
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.model.noun_base import Noun

SAID = {
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 407: "Proxy Authentication Required",
    429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip


class Surroundings(Noun, frozen=True, kw_only=True):
    """Addresses on localhost at which the lab's programs meet faults."""

    #: `URL/status/503/…` answers 503; `URL/short/…` announces more bytes than it sends; anything else answers 200.
    url: str
    closed_port: int
    #: A port on which a process listens already.
    taken_port: int
    #: A port that accepts a connection and resets it at once.
    reset_port: int


class _Troubled(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if parts[0] == "status" and len(parts) > 1 and parts[1].isdigit():
            self._answer(int(parts[1]), b"trouble")
        elif parts[0] == "short":
            self._answer(200, b"only this", promised=100_000)
        else:
            self._answer(200, b"fine")

    do_HEAD = do_GET  # noqa: N815 - the name in http.server

    def _answer(self, status: int, body: bytes, promised: int | None = None) -> None:
        self.send_response(status, SAID.get(status))
        self.send_header("Content-Length", str(len(body) if promised is None else promised))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Print nothing: the lab's output stays clean."""


class _Resetting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        # SO_LINGER with 0 seconds makes the close a reset.
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()


class _ResettingServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def shutdown_request(self, request: object) -> None:
        """Do nothing: the handler has closed the socket, and an orderly shutdown would undo the reset."""


@contextmanager
def surroundings() -> Iterator[Surroundings]:
    """Provide servers and ports until the block ends."""
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Troubled)
    web.daemon_threads = True
    reset = _ResettingServer(("127.0.0.1", 0), _Resetting)
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in (web, reset)]
    for thread in threads:
        thread.start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with socket.socket() as closed:
            # Bound but not listening, so that the port stays reserved and refuses connections.
            closed.bind(("127.0.0.1", 0))
            try:
                yield Surroundings(
                    url=f"http://127.0.0.1:{web.server_address[1]}",
                    closed_port=closed.getsockname()[1],
                    taken_port=taken.getsockname()[1],
                    reset_port=reset.server_address[1],
                )
            finally:
                for server in (web, reset):
                    server.shutdown()
                    server.server_close()
                for thread in threads:
                    thread.join()
