"""Processes that tests start, and what tests wait for."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from holdfast.clock import Clock
from holdfast.reactor import Reactor

if TYPE_CHECKING:
    from conftest import Holdfast

Found = TypeVar("Found")


def until(what: Callable[[], Found], why: str = "it did not come", limit_s: float = 90) -> Found:
    """The first true value of `what`."""
    deadline = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.02)
    return found


def lives(pid: int) -> bool:
    """A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def is_gone(pid: int, limit_s: float = 90) -> bool:
    """The process ends within the time."""
    deadline = time.monotonic() + limit_s
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(Clock().now)
    yield reactor
    reactor.close()


class Terminal:
    """A terminal with a `holdfast` in its foreground."""

    def __init__(self, holdfast: Holdfast, *args: str) -> None:
        self.said = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(holdfast.dir)
            os.execve(sys.executable, [sys.executable, "-m", "holdfast", *args], holdfast.env)

    def types(self, key: bytes) -> None:
        os.write(self.fd, key)

    def wait_for(self, words: bytes, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while words not in self.said:
            assert time.monotonic() < deadline, self.said
            self.read(1.0)

    def read(self, timeout_s: float) -> bool:
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False  # the last process that had it open has left
        self.said += data
        return bool(data)

    def ends(self) -> int:
        while self.read(30):
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
