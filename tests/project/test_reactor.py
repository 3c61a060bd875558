"""The one place that waits, and the register of the helpers that this process has started."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import children
from holdfast.act.isolated_fork import forked
from holdfast.children import Child
from holdfast.model import events as ev
from holdfast.reactor import CallbackPriority, Reactor

if TYPE_CHECKING:
    from holdfast.reactor import News


class Steered:
    """A reactor on a clock that the test moves, and what its callbacks have seen."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reactor = Reactor(lambda: self.now)
        self.seen: list[str] = []
        self.pipes: list[int] = []

    def pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self.pipes += ends
        return ends

    def see(self, name: str) -> None:
        self.seen.append(name)


@pytest.fixture
def steered() -> Iterator[Steered]:
    steered = Steered()
    yield steered
    steered.reactor.close()
    for fd in steered.pipes:
        os.close(fd)


def test_guard_before_death_before_the_rest(steered: Steered) -> None:
    for turn in (CallbackPriority.REST, CallbackPriority.DEATH, CallbackPriority.GUARD):
        reader, writer = steered.pipe()
        steered.reactor.watch(reader, lambda fd, now, name=turn.name: steered.see(name), turn=turn)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        os.write(writer, b"x")
    assert steered.reactor.wait() == 3
    assert steered.seen == ["GUARD", "DEATH", "REST"]


def test_a_watch_that_an_earlier_callback_has_closed_is_not_called(steered: Steered) -> None:
    first, one = steered.pipe()
    second, two = steered.pipe()
    later = steered.reactor.watch(second, lambda fd, now: steered.see("second"))
    steered.reactor.watch(first, lambda fd, now: later.close(), turn=CallbackPriority.DEATH)
    os.write(one, b"x")
    os.write(two, b"x")
    steered.reactor.wait()
    assert steered.seen == []
    assert set(steered.reactor.watching) == {first}


def test_a_closed_watch_does_not_end_the_next_watch_of_its_number(steered: Steered) -> None:
    reader, writer = steered.pipe()
    old = steered.reactor.watch(reader, lambda fd, now: steered.see("old"))
    old.close()
    steered.reactor.watch(reader, lambda fd, now: steered.see("new"))
    old.close()
    os.write(writer, b"x")
    steered.reactor.wait()
    assert steered.seen == ["new"]


def test_events_are_taken_before_the_next_callback_runs(steered: Steered) -> None:
    def told(fd: int, now: float) -> News:
        steered.see("callback")
        return [ev.Tick(), ev.Tick()]

    def take(news: News) -> None:
        steered.see(f"{len(list(news or ()))} events")

    for _ in range(2):
        reader, writer = steered.pipe()
        steered.reactor.watch(reader, told)
        os.write(writer, b"x")
    steered.reactor.wait(take)
    assert steered.seen == ["callback", "2 events", "callback", "2 events"]


def test_a_watch_hears_of_both_directions_while_it_wants_to(steered: Steered) -> None:
    one, other = socket.socketpair()
    watch = steered.reactor.watch(one.fileno(), lambda fd, now: steered.see("ready"))
    assert steered.reactor.wait(longest_s=0.0) == 0
    watch.write_too(True)
    assert steered.reactor.wait(longest_s=0.0) == 1
    watch.write_too(False)
    assert steered.reactor.wait(longest_s=0.0) == 0
    other.send(b"x")
    assert steered.reactor.wait(longest_s=0.0) == 1
    watch.close()
    watch.write_too(True)
    assert steered.reactor.wait(longest_s=0.0) == 0
    one.close()
    other.close()


def test_a_moment_comes_once_and_not_before_its_time(steered: Steered) -> None:
    steered.reactor.at(105.0, lambda now: steered.see(f"at {now:g}"))
    steered.reactor.wait(longest_s=0.0)
    assert steered.seen == []
    steered.now = 106.0
    steered.reactor.wait(longest_s=0.0)
    steered.reactor.wait(longest_s=0.0)
    assert steered.seen == ["at 106"]


def test_a_moment_that_was_closed_never_comes(steered: Steered) -> None:
    steered.reactor.at(50.0, lambda now: steered.see("never")).close()
    steered.reactor.wait(longest_s=0.0)
    assert steered.seen == []


def test_a_deadline_is_asked_for_anew_before_each_wait(steered: Steered) -> None:
    due = 101.0

    def tick(now: float) -> None:
        nonlocal due
        steered.see(f"{now:g}")
        due = now + 10.0

    steered.reactor.deadlines(lambda: due, tick)
    for steered.now in (100.5, 101.0, 102.0, 111.0):
        steered.reactor.wait(longest_s=0.0)
    assert steered.seen == ["101", "111"]


def test_a_helper_is_known_from_its_spawn_until_it_is_reaped(steered: Steered) -> None:
    child = Child(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {}))
    assert child.pid in children.helpers()
    steered.reactor.watch(child.pidfd, lambda fd, now: steered.see("ended"))
    steered.reactor.wait(longest_s=20.0)
    steered.reactor.forget(child.pidfd)
    assert steered.seen == ["ended"]
    assert child.reap() == 7
    assert child.pid not in children.helpers()


def test_a_helper_is_ended_with_its_group(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/below; echo; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        below = os.pidfd_open(int((tmp_path / "below").read_text()))
        Child(process.pid, group=True).end()
        assert process.pid not in children.helpers()
        reactor = Reactor(lambda: 0.0)
        reactor.watch(below, lambda fd, now: None)
        assert reactor.wait(longest_s=20.0) == 1, "what it had started is gone too"
        reactor.close()
        os.close(below)


def test_a_program_is_started_as_a_helper_with_its_streams_in_a_session_of_its_own(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        child = children.start(["sh", "-c", "read x; ps -o sid= -p $$; echo $$; echo oops >&2"], output=out.fileno())
    assert child.reap() == 0
    leader, pid = (tmp_path / "out").read_text().split()
    assert int(leader) == int(pid) == child.pid


def test_a_program_that_is_not_there_starts_no_helper(tmp_path: Path) -> None:
    before = children.helpers()
    with pytest.raises(FileNotFoundError), (tmp_path / "out").open("wb") as out:
        children.start([str(tmp_path / "none")], output=out.fileno())
    assert children.helpers() == before


def test_a_helper_has_ended_before_it_is_reaped_and_after() -> None:
    child = forked(lambda: os.read(0, 1), keep=())
    select.select([child.pidfd], [], [])
    assert child.ended
    assert child.reap() == 0
    reader, writer = os.pipe()
    waits = forked(lambda: os.read(reader, 1), keep=(reader,))
    assert not waits.ended
    os.close(writer)
    os.close(reader)
    waits.end()


def test_code_of_ours_that_raises_in_a_helper_ends_it_with_a_status() -> None:
    assert forked(lambda: 1 // 0, keep=()).reap() == 70


def test_a_helper_that_something_else_reaped_ends_all_the_same() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"])
    child = Child(process.pid)
    assert process.wait() == -15
    assert child.reap() is None
    assert child.pid not in children.helpers()


def test_children_that_a_helper_forks_for_us_are_asked_for_before_each_look() -> None:
    asked = []

    def look() -> None:
        asked.append(1)
        children.note(1 << 30)

    children.inform(look)
    try:
        assert 1 << 30 in children.helpers()
    finally:
        children.inform_no_more(look)
        children.forget(1 << 30)
    assert 1 << 30 not in children.helpers()
    assert asked == [1]
