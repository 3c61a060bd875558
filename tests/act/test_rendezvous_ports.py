"""The port at which the workers of an attempt meet: one that no earlier attempt of the job has had."""

from __future__ import annotations

import _socket
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.act.rendezvous_ports import FarPorts, RendezvousPorts


class Kernel:
    """Sockets of a kernel that gives these ports, one after the other, to whoever asks for any."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = iter(ports)

    def __call__(self, family: int = 0) -> KernelSocket:
        return KernelSocket(self)


class KernelSocket:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._port = 0

    def bind(self, address: tuple[str, int]) -> None:
        self._port = address[1] or next(self._kernel.ports)

    def getsockname(self) -> tuple[str, int]:
        return ("", self._port)

    def close(self) -> None:
        pass


class Store:
    """A store that opens the port that it is asked for, else these, one after the other."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = iter(ports)

    def hold(self, attempt: int, port: int) -> int | None:
        return port or next(self.ports)


def test_a_port_that_the_kernel_gives_again_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_socket, "socket", Kernel([4001, 4001, 4002]))
    ports = RendezvousPorts(None)
    assert (ports.of(1), ports.of(1), ports.of(2)) == (4001, 4001, 4002)


def test_the_users_own_port_is_for_the_first_attempt_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_socket, "socket", Kernel([29500, 4001]))
    ports = RendezvousPorts(29500)
    assert (ports.of(1), ports.of(2)) == (29500, 4001)


def test_a_port_that_the_store_gives_again_is_not_used_again() -> None:
    ports = RendezvousPorts(29500, Store([29500, 4001, 4001, 4002]))
    assert (ports.of(1), ports.of(2), ports.of(3)) == (29500, 4001, 4002)
    assert ports.held(3)


def test_over_nodes_a_port_that_the_kernel_gives_again_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_socket, "socket", Kernel([4001, 4001, 4002]))
    ports = FarPorts(None, None, None)
    assert (ports.of(1), ports.of(2)) == (4001, 4002)


@pytest.fixture
def narrow() -> Iterator[FarPorts]:
    """Ports of a range of three, all of which are free."""
    for first in range(20_000, 32_000, 3):
        try:
            for port in range(first, first + 3):
                with closing(socket.socket()) as probe:
                    probe.bind(("", port))
        except OSError:
            continue
        break
    ports = FarPorts(None, None, (first, first + 2))
    yield ports
    ports.let_go()


def test_each_attempt_has_another_port_of_the_range_until_all_were_used(narrow: FarPorts) -> None:
    """Attempt 4 begins to look where attempt 1 did."""
    assert len({narrow.of(attempt) for attempt in (1, 4, 7)}) == 3
    assert narrow.of(10) in narrow.taken()[:3]
