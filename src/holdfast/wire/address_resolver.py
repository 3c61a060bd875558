"""Resolves host names in child processes, because a look-up may hang and must not block the reactor."""

from __future__ import annotations

import _socket
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast import children

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News, Reactor

RESOLVE_S = 10.0
MOST_ADDRESSES = 16
_MOST_BYTES = 16_384

#: An address family and an IP address. The address may have a scope, as in `fe80::1%eth0`.
Address = tuple[int, str]

_ASK = """
import _socket, sys
try:
    for found in _socket.getaddrinfo(sys.argv[1], 0, 0, _socket.SOCK_STREAM):
        print(int(found[0]), _socket.getnameinfo(found[4], 1 | 2)[0] if len(found[4]) > 2 else found[4][0])
except (OSError, UnicodeError) as error:
    print("no", getattr(error, "strerror", None) or error)
"""


def literal(host: str) -> list[Address]:
    """Return `host` as an address if it is a literal IP address. Otherwise return an empty list."""
    try:
        found = _socket.getaddrinfo(host, 0, 0, _socket.SOCK_STREAM, 0, _socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [(int(family), host) for family, *_ in found]


class Resolving:
    """A look-up of a host name. It calls `done(addresses, why, now)` once.

    `addresses`: the found addresses. `why`: why none was found. `now`: the time of the call.
    """

    def __init__(self, reactor: Reactor, host: str, done: Callable[[list[Address], str, float], News]) -> None:
        """Start the resolver process. Raises OSError if it cannot be started."""
        self._reactor = reactor
        self._done = done
        self._data = b""
        self._answer, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._child = children.start((sys.executable, "-I", "-S", "-c", _ASK, host), output=writing)
        except OSError:
            os.close(self._answer)
            raise
        finally:
            os.close(writing)
        self._late: DueCall = reactor.at(reactor.now() + RESOLVE_S, self._too_late)
        reactor.watch(self._answer, self._read)

    def close(self) -> None:
        """Cancel the look-up; `done` is not called. A second call does nothing."""
        if self._answer >= 0:
            self._late.close()
            self._reactor.forget(self._answer)
            os.close(self._answer)
            self._answer = -1
            self._child.end()

    def _read(self, fd: int, now: float) -> News:
        try:
            data = os.read(fd, _MOST_BYTES)
        except BlockingIOError:
            return None
        self._data += data
        if data and len(self._data) < _MOST_BYTES:
            return None
        self.close()
        return self._done(*_parsed(str(self._data, "utf-8", "replace")), now)

    def _too_late(self, now: float) -> News:
        self.close()
        return self._done([], f"the resolver did not answer within {RESOLVE_S:g} s", now)


def _parsed(text: str) -> tuple[list[Address], str]:
    addresses: list[Address] = []
    why = "the resolver ended without an answer"
    for line in text.splitlines():
        family, _, rest = line.partition(" ")
        if family == "no":
            why = rest
        elif family.isdecimal() and rest and (int(family), rest) not in addresses:
            addresses.append((int(family), rest))
    return addresses[:MOST_ADDRESSES], why
