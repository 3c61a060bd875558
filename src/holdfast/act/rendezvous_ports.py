"""Chooses rendezvous ports, a new one for each attempt, and reserves ports for roles."""

from __future__ import annotations

import _socket  # used instead of `socket`, which creates enums of a hundred constants and so loads slowly
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.act.peer_environment import PeerEnvironment
    from holdfast.act.worker_config import WorkerConfig
    from holdfast.model.gang_protocol import Peers
    from holdfast.model.job_spec import Placement
    from holdfast.model.process_messages import StartWorker

#: The kernel is asked for a free port up to this many times, until it names one that no attempt of this job has used.
_TRIES = 20


class Holder(Protocol):
    """Hosts the workers' rendezvous store. If rank 0 hosts the store, holdfast imports no implementation."""

    def hold(self, attempt: int, port: int) -> int | None: ...


def own_loopback() -> str:
    """Return 127.0.0.1, or ::1 on a machine that has only IPv6."""
    try:
        return _free_port()[0]
    except OSError:
        return "127.0.0.1"


def _free_port() -> tuple[str, int]:
    """Return this machine's loopback address and a free port on it. Raises OSError if there is no free port or no
    address.
    """
    for family, address in ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1")):
        try:
            with closing(_socket.socket(family)) as probe:
                probe.bind((address, 0))
                return address, probe.getsockname()[1]
        except OSError:
            if family == _socket.AF_INET6:
                raise
    raise AssertionError("the loop returns or raises")


class RendezvousPorts:
    """Chooses a new port for each attempt, because an old port may still be in use, or an old process may still connect
    to it.
    """

    def __init__(self, first: int | None, holder: Holder | None = None) -> None:
        """Prepare the choice of ports. `first`: the user's port for attempt 1; None: the user has chosen none.
        `holder`: hosts the store; None if rank 0 hosts it.
        """
        #: The user's port for attempt 1, or None if the user has chosen none.
        self._first = first
        self._holder = holder
        self._taken: dict[int, int] = {}
        self._held: set[int] = set()

    def of(self, attempt: int) -> int:
        """Return the port of an attempt. Repeated calls return the same port."""
        if attempt not in self._taken:
            self._taken[attempt] = self._choose(attempt)
        return self._taken[attempt]

    def taken(self) -> tuple[int, ...]:
        """Return all ports chosen so far, including the user's port."""
        return (*self._taken.values(), *((self._first,) if self._first else ()))

    def held(self, attempt: int) -> bool:
        """Return whether holdfast's store process serves this attempt's port, instead of a worker."""
        return attempt in self._held

    def let_go(self) -> None:
        """Release the reserved port, because rank 0 may open it now."""

    def _choose(self, attempt: int) -> int:
        port = self._hold(attempt)
        if port is None:
            port = self._first if attempt == 1 else None
        while port is None or port in self._taken.values():
            _, port = _free_port()
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


class FarPorts(RendezvousPorts):
    """Chooses rendezvous ports for workers on several nodes. All nodes learn the port early, so this object keeps the
    port bound until rank 0 opens it.
    """

    def __init__(self, first: int | None, holder: Holder | None, among: tuple[int, int] | None) -> None:
        """Prepare the choice of ports. `first`, `holder`: as in `RendezvousPorts`. `among`: the first and the last port
        that a firewall allows; None: any port.
        """
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
        # The whole range is in use. Rank 0 will fail to open a port, and its log will show why.
        return super()._choose(attempt)

    def _hold_at(self, attempt: int, wanted: int) -> int | None:
        """Bind the port `wanted` (0: any), through the store process if there is one. Return the port, or None if it is
        in use."""
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
        """Yield the ports to try, those of earlier attempts last. 0 means any port."""
        if attempt == 1 and self._first:
            yield self._first
        if self._among is None:
            yield from [0] * _TRIES
            return
        first, last = self._among
        # Start at a port that depends on the pid, because two jobs with the same range then rarely collide.
        begin = first + (os.getpid() + attempt) % (last - first + 1)
        rest, used = [*range(begin, last + 1), *range(first, begin)], set(self._taken.values())
        yield from sorted(rest, key=lambda port: port in used)


class NoPort(OSError):
    """Raised if too few ports are free. The argument is the number of free ports."""


class ReservedPorts:
    """Reserves the ports that this node's workers request by label. Each port stays bound until its worker runs.

    An attempt gets the port of an earlier attempt only if no other port is free. `among`: as in `FarPorts`.
    """

    def __init__(self, among: tuple[int, int] | None) -> None:
        self._among = among
        self._attempt = 0
        self._held: dict[int, _socket.socket] = {}
        self._used: set[int] = set()

    def hold(self, attempt: int, count: int, without: Collection[int] = ()) -> tuple[int, ...]:
        """Reserve `count` ports for an attempt. Repeated calls return the same ports, and more if `count` has grown.
        Raises NoPort.

        `without`: ports that are reserved for another use, though no process holds them.
        """
        if attempt != self._attempt:
            self.let_go()
            self._attempt = attempt
        for wanted in self._wanted(attempt, count):
            if len(self._held) >= count:
                break
            if wanted not in without:
                self._hold(wanted, without)
        if len(self._held) < count:
            had = len(self._held)
            self.let_go()
            raise NoPort(had)
        return tuple(self._held)[:count]

    def let_go(self, ports: Iterable[int] | None = None) -> None:
        """Release these ports, because their worker may open them now. None: release all ports, because the attempt is
        over.
        """
        for port in tuple(self._held) if ports is None else ports:
            held = self._held.pop(port, None)
            if held is not None:
                held.close()

    def _hold(self, wanted: int, without: Collection[int]) -> None:
        try:
            held = _socket.socket()
        except OSError:
            return  # reserve no port: this process has too many open files
        try:
            held.bind(("", wanted))
        except OSError:
            held.close()
            return
        port = int(held.getsockname()[1])
        if not wanted and (port in self._used or port in without):
            held.close()
            return
        self._held[port] = held
        self._used.add(port)

    def _wanted(self, attempt: int, count: int) -> Iterator[int]:
        """Yield the ports to try, those of earlier attempts last. 0 means any port."""
        if self._among is None:
            yield from [0] * (count + _TRIES)
            return
        first, last = self._among
        # Start at a port that depends on the pid, because two jobs with the same range then rarely collide.
        begin = first + (os.getpid() + attempt) % (last - first + 1)
        rest, used = [*range(begin, last + 1), *range(first, begin)], set(self._used)
        yield from (port for port in sorted(rest, key=lambda port: port in used) if port not in self._held)


class RolePorts:
    """Reserves the ports of a job's roles on this machine, and adds the peers' ports to workers' environments.

    `ports`: the rendezvous ports of the job's attempts, which roles must not get.
    """

    def __init__(self, setting: WorkerConfig, ports: RendezvousPorts) -> None:
        self._setting = setting
        self._ports = ports
        self._reserved: ReservedPorts | None = None
        #: The peers' variables in the present attempt; None if the job does not need them.
        self._told: PeerEnvironment | None = None

    def hold(self, attempt: int, count: int) -> tuple[int, ...]:
        """Reserve `count` ports for the workers of an attempt; each stays bound until its worker runs.
        Raises NoPort."""
        if self._reserved is None:
            self._reserved = ReservedPorts(self._setting.port_range)
        return self._reserved.hold(attempt, count, self._ports.taken())

    def tell(self, env: Mapping[str, str], order: StartWorker, peers: Peers) -> dict[str, str]:
        """Return the environment of a worker, with its peers' addresses added."""
        if self._told is None or self._told.attempt != order.attempt:
            # imported late, because few jobs use their peers' addresses
            from holdfast.act.peer_environment import PeerEnvironment

            self._told = PeerEnvironment(order.attempt, peers, self._setting)
        return self._told.added(env, order.placement)

    def let_go(self, placement: Placement) -> None:
        """Release the ports of this worker, which runs now."""
        if self._reserved is not None and self._told is not None:
            self._reserved.let_go(self._told.ports(placement))

    def give_up(self, ports: Iterable[int]) -> None:
        """Release these ports, because a process other than a worker (sshd) opens them now."""
        if self._reserved is not None:
            self._reserved.let_go(ports)


def ports_of(setting: WorkerConfig, holder: Holder | None) -> RendezvousPorts:
    """Return the object that chooses the rendezvous ports of one job."""
    if setting.far:
        return FarPorts(setting.master_port, holder, setting.port_range)
    return RendezvousPorts(setting.master_port, holder)
