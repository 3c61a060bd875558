"""Rendezvous ports: a new one for each attempt."""

from __future__ import annotations

import _socket  # `socket` itself makes enums of a hundred numbers first
from contextlib import closing
from typing import Protocol


class Holder(Protocol):
    """Hosts the workers' store; a run in which rank 0 does that itself never imports one."""

    def hold(self, attempt: int, port: int) -> int | None: ...


class Ports:
    """Ports that no attempt of this job has had: an old one may still be held, or remembered by a process of before."""

    def __init__(self, first: int | None, holder: Holder | None = None) -> None:
        self._first = first
        """For attempt 1, where the user has chosen it."""
        self._holder = holder
        self._taken: dict[int, int] = {}
        self._held: set[int] = set()

    def of(self, attempt: int) -> int:
        """The port of an attempt; asked again, the same."""
        if attempt not in self._taken:
            port = self._hold(attempt)
            if port is None:
                port = self._first if attempt == 1 else None
            while port is None or port in self._taken.values():
                with closing(_socket.socket()) as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = probe.getsockname()[1]
            self._taken[attempt] = port
        return self._taken[attempt]

    def held(self, attempt: int) -> bool:
        """Whether this attempt's port is open already, and served by no worker."""
        return attempt in self._held

    def _hold(self, attempt: int) -> int | None:
        if self._holder is None:
            return None
        wanted = self._first or 0 if attempt == 1 else 0
        port = self._holder.hold(attempt, wanted)
        while port is not None and port in self._taken.values():
            port = self._holder.hold(attempt, 0)
        if port is not None:
            self._held.add(attempt)
        return port
