"""Rendezvous ports: a new one for each attempt."""

from __future__ import annotations

import _socket  # `socket` itself makes enums of a hundred numbers first
from contextlib import closing


class Ports:
    """Ports that no attempt of this job has had: an old one may still be held, or remembered by a process of before."""

    def __init__(self, first: int | None) -> None:
        self._first = first
        """For attempt 1, where somebody has chosen it."""
        self._taken: dict[int, int] = {}

    def of(self, attempt: int) -> int:
        """The port of an attempt; asked again, the same."""
        if attempt not in self._taken:
            port = self._first if attempt == 1 else None
            while port is None or port in self._taken.values():
                with closing(_socket.socket()) as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = probe.getsockname()[1]
            self._taken[attempt] = port
        return self._taken[attempt]
