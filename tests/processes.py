"""Processes that tests start, and what tests wait for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.clock import Clock
from holdfast.reactor import Reactor

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
