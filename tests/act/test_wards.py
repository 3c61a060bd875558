"""A guard of several children, with real processes: who is started again, what ends with whom, who hears a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from processes import is_gone, lives

pytestmark = pytest.mark.real

WORLD = """
import os, signal, sys, time
from holdfast.act.guarded_children import ChildContext, Guard, ManagedChild, OVER
from holdfast.clock import Clock

where = sys.argv[1]

def note(text):
    with open(f"{where}/notes", "a") as file:
        file.write(text + "\\n")

def block():
    heard = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    return heard

def read(birth, name):
    # What the guard says, until its end.
    while word := os.read(birth.fd, 2):
        note(f"{name} {birth.number} hears {word[0]}")
        if word == OVER or word[0] == signal.SIGTERM:
            return
    note(f"{name} {birth.number}: the guard is gone")

def owner(birth):
    note(f"owner {birth.number} pid {os.getpid()}")
    if os.path.exists(f"{where}/fit"):
        birth.settled()
    read(birth, "owner")
    return 7

def agent(birth):
    if os.fork() == 0:
        os.setsid()
        note(f"worker of {birth.number} pid {os.getpid()}")
        time.sleep(600)
        os._exit(0)
    note(f"agent {birth.number} pid {os.getpid()}")
    read(birth, "agent")
    return 3
"""

KEEP = """
heard = block()
wards = [ManagedChild("holdfast-owner", owner), ManagedChild("holdfast-agent", agent, hears=(signal.SIGUSR1,))]
status = Guard(wards, Clock().now, lambda text: note("said: " + text)).keep(heard)
note(f"status {status}")
sys.exit(status if status >= 0 else 128 - status)
"""


class WardWorld:
    """A guard with its two wards."""

    def __init__(self, where: Path, text: str) -> None:
        self.notes = where / "notes"
        self.notes.touch()
        code = WORLD + textwrap.dedent(text)
        self.guard = subprocess.Popen([sys.executable, "-c", code, str(where)])

    def wait(self, words: str) -> list[str]:
        """The notes, once these words stand among them."""
        deadline = time.monotonic() + 30
        while words not in (text := self.notes.read_text()):
            assert time.monotonic() < deadline, f"no {words!r} in:\n{text}"
            time.sleep(0.01)
        return text.splitlines()

    def pid(self, words: str) -> int:
        """The process that this note is of."""
        found = self.wait(f"{words} pid ")
        return next(int(line.rpartition(" ")[2]) for line in found if line.startswith(f"{words} pid "))

    def kill(self, words: str) -> None:
        os.kill(self.pid(words), signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""


@contextmanager
def ward_world(where: Path, text: str = KEEP) -> Iterator[WardWorld]:
    made = WardWorld(where, text)
    try:
        yield made
    finally:
        made.guard.kill()
        made.guard.wait()
        # What a killed guard leaves to its wards is not what these wards end: all that has this test's words goes.
        for process in psutil.process_iter():
            if str(where) in _command(process.pid):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def test_each_ward_has_a_name_of_its_own(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        for name in ("owner", "agent"):
            assert Path(f"/proc/{it.pid(f'{name} 1')}/comm").read_text().strip() == f"holdfast-{name}"


@pytest.mark.key
def test_an_owner_that_is_killed_is_started_again_and_the_workers_go_on(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        worker = it.pid("worker of 1")
        it.kill("owner 1")
        it.pid("owner 2")
        assert lives(worker)
        assert "agent 2" not in it.notes.read_text()


@pytest.mark.key
def test_an_agent_that_is_killed_is_started_again_after_its_workers_are_dead(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        worker = it.pid("worker of 1")
        it.kill("agent 1")
        it.pid("agent 2")
        assert not lives(worker)
        assert "owner 2" not in it.notes.read_text()


def test_the_end_of_the_owner_is_the_end_of_the_agent_and_of_its_workers(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        worker = it.pid("worker of 1")
        it.pid("owner 1")
        os.kill(it.guard.pid, signal.SIGTERM)
        assert it.guard.wait(30) == 7
        assert not lives(worker)
        assert {"owner 1 hears 15", "agent 1 hears 0", "status 7"} <= set(it.notes.read_text().splitlines())


def test_a_signal_that_is_meant_for_the_workers_is_told_to_the_agent(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        it.pid("agent 1")
        os.kill(it.guard.pid, signal.SIGUSR1)
        it.wait(f"agent 1 hears {signal.SIGUSR1.value}")


def test_a_signal_that_comes_while_the_owner_is_away_is_told_to_the_next_one(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        it.pid("agent 1")
        owner = it.pid("owner 1")
        os.kill(it.guard.pid, signal.SIGSTOP)
        os.kill(owner, signal.SIGKILL)
        os.kill(it.guard.pid, signal.SIGCONT)
        it.pid("owner 2")
        os.kill(it.guard.pid, signal.SIGTERM)
        assert it.guard.wait(30) == 7


@pytest.mark.key
def test_what_the_guard_kept_ends_when_the_guard_is_killed(tmp_path: Path) -> None:
    with ward_world(tmp_path) as it:
        owner, agent = it.pid("owner 1"), it.pid("agent 1")
        it.guard.kill()
        it.wait("owner 1: the guard is gone")
        it.wait("agent 1: the guard is gone")
        assert is_gone(owner)
        assert is_gone(agent)


def test_an_owner_that_does_not_come_up_is_given_up(tmp_path: Path) -> None:
    text = """
    import holdfast.act.guarded_children as wards_module
    wards_module.PAUSES_S = (0.0,) * 5
    def dies(birth):
        note(f"owner {birth.number}")
        while "worker of 1" not in open(f"{where}/notes").read():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    """ + KEEP.replace('"holdfast-owner", owner', '"holdfast-owner", dies').replace("\n", "\n    ")
    with ward_world(tmp_path, text) as it:
        worker = it.pid("worker of 1")
        assert it.guard.wait(30) == 128 + signal.SIGKILL
        assert not lives(worker)
        assert "owner 6" in it.notes.read_text()
        assert "owner 7" not in it.notes.read_text()


def test_an_owner_that_came_up_each_time_may_be_killed_ten_times(tmp_path: Path) -> None:
    (tmp_path / "fit").touch()
    with ward_world(tmp_path) as it:
        worker = it.pid("worker of 1")
        for number in range(1, 11):
            it.kill(f"owner {number}")
        it.pid("owner 11")
        assert lives(worker)


def test_an_agent_that_ends_by_itself_is_told_to_the_owner_and_not_started_again(tmp_path: Path) -> None:
    text = KEEP.replace('"holdfast-agent", agent', '"holdfast-agent", lambda birth: 3')
    with ward_world(tmp_path, text) as it:
        it.wait("owner 1 hears 0")
        assert it.guard.wait(30) == 7
