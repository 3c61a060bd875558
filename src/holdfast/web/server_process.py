"""The server process: runs uvicorn on an open socket, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from holdfast.web.page_parts import Home
from holdfast.web.web_site import ServerSetup, WebSite

#: Maximum number of requests at the same time. Any further request gets status 503.
MOST_REQUESTS = 128


class _Server(uvicorn.Server):
    """A server that ends event streams on a signal. Otherwise uvicorn would wait seconds for them."""

    def __init__(self, config: uvicorn.Config, site: WebSite) -> None:
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._site.end()
        super().handle_exit(sig, frame)


def serve(
    listening: socket.socket,
    *,
    homes: tuple[Home, ...],
    token: str,
    port: int,
    clock: Callable[[], float],
    names: tuple[str, ...],
) -> None:
    """Answer requests until a signal ends the server.

    `listening`: the open socket. `token`: the secret of the printed link. `port`: the port of `listening`. `clock`:
    returns seconds since the epoch. `names`: further host names of this machine that requests may use.
    """
    site = WebSite(ServerSetup(homes, token, port, clock, names))
    config = uvicorn.Config(
        site.app(),
        log_level="error",
        access_log=False,
        limit_concurrency=MOST_REQUESTS,
        timeout_graceful_shutdown=2,
        server_header=False,
        # A header must not say which machine a connection comes from: the token's door asks the kernel for its user.
        proxy_headers=False,
    )
    _Server(config, site).run(sockets=[listening])
