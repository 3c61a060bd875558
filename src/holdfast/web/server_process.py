"""The server process: runs uvicorn on an open socket, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.web.page_parts import Home
from holdfast.web.web_site import ServerSetup, WebSite

#: Maximum number of requests at the same time. Any further request gets status 503.
MOST_REQUESTS = 128
#: Maximum number of connections without a whole request. Of more, the one that has been silent longest is closed.
MOST_SILENT = 64
#: Time limit for the header of a request, in seconds.
HEADER_S = 10.0


class _Connection(H11Protocol):
    """A connection whose silence keeps nobody else out: any user of the machine may connect, without the token."""

    _since = 0.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._await_header()
        silent = [each for each in self.connections if isinstance(each, _Connection) and each.is_silent()]
        if len(silent) > MOST_SILENT:
            min(silent, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_header()

    def is_silent(self) -> bool:
        """Return whether no request has come whole, or only earlier ones, which are answered."""
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)

    def _await_header(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._since = self.loop.time()
        self._limit = self.loop.call_later(HEADER_S, self._end_of_header)

    def _end_of_header(self) -> None:
        if self.is_silent():
            self.transport.abort()


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
        http=_Connection,
        log_level="error",
        access_log=False,
        limit_concurrency=MOST_REQUESTS,
        timeout_graceful_shutdown=2,
        server_header=False,
        # A header must not say which machine a connection comes from: the token's door asks the kernel for its user.
        proxy_headers=False,
    )
    _Server(config, site).run(sockets=[listening])
