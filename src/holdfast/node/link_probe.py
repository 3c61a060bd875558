"""A node's part in measuring links: it listens for its peers, and connects to the peers that the owner names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.model.gang_protocol import ClosePort, MeasurePeer, OpenPort, PeerMeasured, PortOpen
from holdfast.observe.link_exchange import PeerPort, PeerProbe

if TYPE_CHECKING:
    from holdfast.reactor import Reactor


class LinkProbe:
    """Measures links to peers.

    `among`: first and last port that it may open (for firewalls), or None for any. `tell` sends a result to the
    owner.
    """

    def __init__(
        self, reactor: Reactor, among: tuple[int, int] | None, tell: Callable[[PortOpen | PeerMeasured], None]
    ) -> None:
        self._reactor = reactor
        self._among = among
        self._tell = tell
        self._port: PeerPort | None = None
        self._probes: set[PeerProbe] = set()

    def take(self, order: OpenPort | MeasurePeer | ClosePort, now: float) -> None:
        """Carry out a request of the owner."""
        match order:
            case OpenPort():
                self.close()
                self._open(order)
            case MeasurePeer():
                self._probes.add(PeerProbe(order, self._reactor, now, self._measured))
            case ClosePort():
                self.close()

    def close(self) -> None:
        """Stop serving and measuring peers."""
        for probe in self._probes:
            probe.close()
        self._probes.clear()
        if self._port is not None:
            self._port.close()
            self._port = None

    def _open(self, order: OpenPort) -> None:
        try:
            self._port = PeerPort(order, self._reactor, self._ports())
        except OSError as error:
            why = f"no port can be opened: {error.strerror or error}"
            self._tell(PortOpen(attempt=order.attempt, round=order.round, trouble=why))
            return
        self._tell(PortOpen(attempt=order.attempt, round=order.round, port=self._port.port))

    def _ports(self) -> Iterator[int]:
        if self._among is None:
            yield 0
            return
        first, last = self._among
        # Jobs that share a range start at different ports, from the end: MASTER_PORT is searched from the beginning.
        begin = last - os.getpid() % (last - first + 1)
        yield from range(begin, first - 1, -1)
        yield from range(last, begin, -1)

    def _measured(self, probe: PeerProbe, said: PeerMeasured) -> None:
        self._probes.discard(probe)
        self._tell(said)
