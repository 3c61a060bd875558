"""At the job's end the proxies of a mesh in the owner's pod are asked to end; what is none of them is left alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from holdfast.platforms.kubernetes.owner import mesh_sidecars
from holdfast.platforms.kubernetes.owner.mesh_sidecars import ENDPOINTS, end_sidecars


@contextmanager
def proxy(status: int) -> Iterator[tuple[int, list[str]]]:
    """A proxy on a free port, and the requests that it gets."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("status", [200, 403, 500])
def test_each_proxy_that_listens_is_asked_once(status: int) -> None:
    with proxy(status) as (istio, of_istio), proxy(status) as (linkerd, of_linkerd):
        ports = end_sidecars(((istio, ENDPOINTS[0][1]), (linkerd, ENDPOINTS[1][1])))
    assert ports == (istio, linkerd)
    assert (of_istio, of_linkerd) == (["/quitquitquit"], ["/shutdown"])


def test_a_port_where_nobody_or_somebody_else_listens_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_sidecars, "LIMIT_S", 0.2)
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as silent:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        with socket.create_server(("127.0.0.1", 0)) as other, proxy(200) as (port, asked):
            talker = threading.Thread(target=lambda: _says_something_else(other))
            talker.start()
            ports = [one.getsockname()[1] for one in (closed, silent, other)]
            assert end_sidecars([(each, "/quitquitquit") for each in (*ports, port)]) == (port,)
            talker.join()
    assert asked == ["/quitquitquit"]


def _says_something_else(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"SSH-2.0-x\r\n")
