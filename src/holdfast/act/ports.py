"""Rendezvous ports: a new one for each attempt."""

from __future__ import annotations

import _socket  # `socket` itself makes enums of a hundred numbers first
import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.act.setting import Setting

_TRIES = 20
"""How often the kernel is asked for any port, until it gives one that no attempt of this job has had."""


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
            self._taken[attempt] = self._choose(attempt)
        return self._taken[attempt]

    def held(self, attempt: int) -> bool:
        """Whether this attempt's port is open already, and served by no worker."""
        return attempt in self._held

    def let_go(self) -> None:
        """Rank 0 may open its port now."""

    def _choose(self, attempt: int) -> int:
        port = self._hold(attempt)
        if port is None:
            port = self._first if attempt == 1 else None
        while port is None or port in self._taken.values():
            with closing(_socket.socket()) as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        return port

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


class FarPorts(Ports):
    """For workers on several nodes: a port is told to them all, so it is held from its choice until rank 0 opens it.

    `among`: the first and the last port that may be chosen, for firewalls; None: any.
    """

    def __init__(self, first: int | None, holder: Holder | None, among: tuple[int, int] | None) -> None:
        super().__init__(first, holder)
        self._among = among
        self._kept: _socket.socket | None = None

    def let_go(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _choose(self, attempt: int) -> int:
        self.let_go()
        for wanted in self._wanted(attempt):
            port = self._hold_at(attempt, wanted)
            if port is not None and (wanted or port not in self._taken.values()):
                return port
        return super()._choose(attempt)  # the whole range is taken: rank 0 finds it so, and its log says so

    def _hold_at(self, attempt: int, wanted: int) -> int | None:
        """Hold this port (0: any), served already where there is a store; None: it is taken."""
        if self._holder is not None and (port := self._holder.hold(attempt, wanted)) is not None:
            self._held.add(attempt)
            return port
        self._held.discard(attempt)
        self.let_go()
        kept = _socket.socket()
        try:
            kept.bind(("", wanted))
        except OSError:
            kept.close()
            return None
        self._kept = kept
        return int(kept.getsockname()[1])

    def _wanted(self, attempt: int) -> Iterator[int]:
        """What to try, in this order; ports of earlier attempts come last."""
        if attempt == 1 and self._first:
            yield self._first
        if self._among is None:
            yield from [0] * _TRIES
            return
        first, last = self._among
        # Two jobs that share a range begin at different places of it.
        begin = first + (os.getpid() + attempt) % (last - first + 1)
        rest, used = [*range(begin, last + 1), *range(first, begin)], set(self._taken.values())
        yield from sorted(rest, key=lambda port: port in used)


def ports_of(setting: Setting, holder: Holder | None) -> Ports:
    """Those of the workers of one job."""
    if setting.far:
        return FarPorts(setting.master_port, holder, setting.port_range)
    return Ports(setting.master_port, holder)
