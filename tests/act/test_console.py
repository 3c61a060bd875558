"""The console and its streams: whole lines, a bounded buffer, nothing that waits."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import pty
import resource
import socket
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.act.console import Console, open_consoles
from holdfast.act.console_streams import HOLD_BYTES, ConsoleStream
from holdfast.act.nonblocking_writer import Outlet, OutletKind


class Screen:
    """A console on a file of our own, to be read back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.console = Console(Outlet(fd))
        os.close(fd)

    def stream(self, rank: int) -> ConsoleStream:
        return self.console.stream(f"[w-{rank}] ".encode(), f"w-{rank}/stdout.log")

    @property
    def text(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    screen = Screen(tmp_path / "screen")
    yield screen
    screen.console.close()


class Pipe:
    """A console on a pipe, whose reader reads only when told to."""

    def __init__(self, **limits: float) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, 4096)
        self.console = Console(Outlet(self.write_fd), limit_bytes=int(limits.get("limit_bytes", 100_000)))

    def read(self) -> bytes:
        try:
            return os.read(self.read_fd, 1 << 20)
        except BlockingIOError:
            return b""

    def read_all(self, now: float) -> bytes:
        got = b""
        while block := self.read():
            got += block
            self.console.on_writable(now)
        return got

    def close(self) -> None:
        self.console.close()
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)


def console_state(console: Console) -> str:
    if console.full:
        return "full"
    if console.stalled:
        return "stalled"
    return "idle" if console.idle else "busy"


@pytest.fixture
def console_pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_each_line_has_the_prefix(screen: Screen) -> None:
    stream = screen.stream(0)
    stream.write(b"one\ntwo\n\nfo", 0.0)
    stream.write(b"ur\n", 0.0)
    assert screen.text == b"[w-0] one\n[w-0] two\n[w-0] \n[w-0] four\n"


def test_an_unfinished_line_is_held_back_and_shown_after_a_while(screen: Screen) -> None:
    stream = screen.stream(0)
    stream.write(b"Continue? ", 10.0)
    assert screen.text == b""
    assert screen.console.next_wake() == pytest.approx(10.2)
    screen.console.tick(10.1)
    assert screen.text == b""
    screen.console.tick(10.2)
    assert screen.text == b"[w-0] Continue? "
    assert screen.console.next_wake() is None
    stream.write(b"yes\n", 11.0)
    assert screen.text == b"[w-0] Continue? yes\n"


def test_two_workers_never_share_a_line(screen: Screen) -> None:
    one, two = screen.stream(1), screen.stream(2)
    one.write(b"begin ", 0.0)
    two.write(b"other\n", 0.0)
    one.write(b"end\n", 0.0)
    assert screen.text == b"[w-2] other\n[w-1] begin end\n"


def test_a_shown_unfinished_line_is_ended_before_another_voice(screen: Screen) -> None:
    one, two = screen.stream(1), screen.stream(2)
    one.write(b"begin ", 0.0)
    screen.console.tick(1.0)
    two.write(b"other\n", 1.0)
    one.write(b"end\n", 1.0)
    assert screen.text == b"[w-1] begin \n[w-2] other\n[w-1] end\n"


def test_a_line_that_was_ended_for_another_voice_leaves_no_empty_line(screen: Screen) -> None:
    one, two = screen.stream(1), screen.stream(2)
    one.write(b"begin", 0.0)
    screen.console.tick(1.0)
    two.write(b"other\n", 1.0)
    one.write(b"\nnext\n", 1.0)
    assert screen.text == b"[w-1] begin\n[w-2] other\n[w-1] next\n"


def test_holdfast_speaks_on_lines_of_its_own(screen: Screen) -> None:
    stream = screen.stream(0)
    stream.write(b"50%", 0.0)
    screen.console.tick(1.0)
    screen.console.say("holdfast: worker-1 died", 1.0)
    stream.write(b" done\n", 1.0)
    assert screen.text == b"[w-0] 50%\nholdfast: worker-1 died\n[w-0]  done\n"


def test_a_progress_bar_moves_in_place(screen: Screen) -> None:
    stream = screen.stream(0)
    for percent in (b"\r 1%", b"\r 2%", b"\r 3%"):
        stream.write(percent, 0.0)
    stream.write(b"\n", 0.0)
    assert screen.text == b"[w-0]  1%\r[w-0]  2%\r[w-0]  3%\n"


def test_a_bar_that_returns_at_its_end_is_shown_at_once(screen: Screen) -> None:
    stream = screen.stream(0)
    stream.write(b"1%\r", 0.0)
    assert screen.text == b"[w-0] 1%"
    stream.write(b"2%\r", 0.0)
    assert screen.text == b"[w-0] 1%\r[w-0] 2%"
    stream.close(0.0)
    assert screen.text == b"[w-0] 1%\r[w-0] 2%\n"


def test_the_bars_of_two_workers_become_lines(screen: Screen) -> None:
    one, two = screen.stream(1), screen.stream(2)
    for n in range(2):
        one.write(b"\r%d%%" % n, float(n))
        two.write(b"\r%d%%" % n, float(n))
        screen.console.tick(n + 0.5)
    assert screen.text == b"[w-1] 0%\n[w-2] 0%\n[w-1] 1%\n[w-2] 1%"


@pytest.mark.parametrize("cut", range(8))
def test_windows_line_ends_are_one_line_end_wherever_the_block_is_cut(screen: Screen, cut: int) -> None:
    stream = screen.stream(0)
    data = b"ab\r\ncd\r\n"
    stream.write(data[:cut], 0.0)
    stream.write(data[cut:], 0.0)
    assert screen.text == b"[w-0] ab\r\n[w-0] cd\r\n"


def test_the_last_line_is_ended_when_the_stream_ends(screen: Screen) -> None:
    stream = screen.stream(0)
    stream.write(b"a\nno newline", 0.0)
    stream.close(0.0)
    assert screen.text == b"[w-0] a\n[w-0] no newline\n"


def test_a_character_is_never_cut_by_another_voice(screen: Screen) -> None:
    stream = screen.stream(0)
    euro = "€".encode()
    stream.write(b"1 " + euro[:2], 0.0)
    screen.console.tick(1.0)
    assert screen.text == b"[w-0] 1 "
    screen.console.say("holdfast: x", 1.0)
    stream.write(euro[2:] + b"\n", 1.0)
    assert screen.text.decode() == "[w-0] 1 \nholdfast: x\n[w-0] €\n"


def test_bytes_that_are_no_text_pass_unchanged(screen: Screen) -> None:
    stream = screen.stream(0)
    garbage = bytes(byte for byte in range(256) if byte not in b"\r\n") * 8
    stream.write(garbage, 0.0)
    stream.close(0.0)
    assert screen.text == b"[w-0] " + garbage + b"\n"


def test_a_line_without_end_is_shown_in_parts_and_not_collected(screen: Screen) -> None:
    stream = screen.stream(0)
    for _ in range(100):
        stream.write(b"x" * 1000, 0.0)
    assert len(screen.text) > 100_000 - HOLD_BYTES - 1000
    assert screen.text == b"[w-0] " + b"x" * (len(screen.text) - 6)


def on_screen(text: str) -> list[str]:
    """What a terminal shows in the end: a return moves to the line's beginning, and what comes next overwrites."""
    lines: list[list[str]] = [[]]
    column = 0
    for char in text:
        if char == "\n":
            lines.append([])
            column = 0
        elif char == "\r":
            column = 0
        else:
            lines[-1][column : column + 1] = [char]
            column += 1
    return ["".join(line) for line in lines]


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


# One in-memory file serves all examples: a fixture would be one for all of them anyway.
@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet="ab\n\r€", max_size=40).map(str.encode),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_how_the_blocks_are_cut_makes_no_difference(data: bytes, places: list[int]) -> None:
    shown = []
    for blocks in ([data], cuts(data, places), [data[i : i + 1] for i in range(len(data))]):
        with memory_file() as fd:
            console = Console(Outlet(fd))
            stream = console.stream(b"> ", "x")
            for block in blocks:
                stream.write(block, 0.0)
            stream.close(0.0)
            console.close()
            shown.append(os.pread(fd, 10_000, 0))
    views = [on_screen(text.decode()) for text in shown]
    assert views[0] == views[1] == views[2]
    if b"\r" not in data:
        assert shown[0] == b"".join(b"> " + line.rstrip(b"\n") + b"\n" for line in data.splitlines(keepends=True))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.text(alphabet="xy\n", max_size=6), st.booleans()), max_size=25))
def test_every_line_on_the_screen_is_one_workers(steps: list[tuple[int, str, bool]]) -> None:
    written = ["", "", ""]
    with memory_file() as fd:
        console = Console(Outlet(fd))
        streams = [console.stream(b"%d:" % rank, "x") for rank in range(3)]
        now = 0.0
        for rank, text, waits in steps:
            streams[rank].write(text.encode(), now)
            written[rank] += text
            if waits:
                now += 1.0
                console.tick(now)
        for stream in streams:
            stream.close(now)
        console.close()
        lines = os.pread(fd, 10_000, 0).decode().splitlines()
    assert all(line[:2] in ("0:", "1:", "2:") and ":" not in line[2:] for line in lines)
    for rank in range(3):
        seen = "".join(line[2:] for line in lines if line.startswith(f"{rank}:"))
        assert seen == written[rank].replace("\n", "")


class memory_file:  # noqa: N801  a context manager that reads like the call it is
    def __enter__(self) -> int:
        self.fd = os.memfd_create("screen")
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def test_a_slow_reader_makes_it_full_and_loses_nothing(console_pipe: Pipe) -> None:
    stream = console_pipe.console.stream(b"", "x")
    line = b"0123456789\n"
    sent = 0
    while not console_pipe.console.full:
        stream.write(line * 100, 0.0)
        sent += 100
    assert console_pipe.console.unshown_bytes >= 100_000
    got, now = b"", 0.0
    while block := console_pipe.read():
        got += block
        now += 4.9
        console_pipe.console.tick(now)
        console_pipe.console.on_writable(now)
    assert got == line * sent
    assert console_state(console_pipe.console) == "idle"
    assert console_pipe.console.take_notes() == []


def test_a_line_is_not_broken_because_its_worker_was_held_back(console_pipe: Pipe) -> None:
    one, two = console_pipe.console.stream(b"1 ", "x"), console_pipe.console.stream(b"2 ", "y")
    one.write(b"begin ", 0.0)
    while not console_pipe.console.full:
        two.write(b"other\n" * 100, 0.0)
    assert console_pipe.console.next_wake() == pytest.approx(5.0)
    console_pipe.console.tick(4.0)
    got = console_pipe.read_all(4.0)
    assert console_pipe.console.next_wake() == pytest.approx(4.2)
    console_pipe.console.tick(4.1)
    one.write(b"end\n", 4.1)
    got += console_pipe.read_all(4.1)
    assert got.endswith(b"2 other\n1 begin end\n")
    assert got.count(b"begin") == 1


def test_a_reader_that_takes_nothing_loses_output_and_is_told(console_pipe: Pipe) -> None:
    console = console_pipe.console
    stream = console.stream(b"[w-0] ", "/logs/w-0/stdout.log")
    while not console.full:
        stream.write(b"early\n" * 100, 0.0)
    assert console.next_wake() == pytest.approx(5.0)
    console.tick(4.9)
    assert console_state(console) == "full"
    console.tick(5.0)
    assert console_state(console) == "stalled"
    stream.write(b"late\n" * 100_000, 6.0)
    assert console.unshown_bytes > 500_000
    assert console.next_wake() is None
    (note,) = console.take_notes()
    assert "has taken nothing for 5 s" in note
    assert "log files have all of it" in note
    console.say("holdfast: still here", 6.0)
    got = console_pipe.read_all(7.0)
    assert b"late" not in got
    assert b"holdfast: still here\n" in got
    assert b"holdfast: 0.5 MB of the workers' output is left out here; it is whole in /logs/w-0/stdout.log\n" in got
    stream.write(b"again\n", 8.0)
    assert console_pipe.read() == b"[w-0] again\n"
    assert console.take_notes() == []
    while console_state(console) == "idle" or console_state(console) == "busy":
        stream.write(b"more\n" * 100, 9.0)
    assert console_state(console) == "full"


def test_a_silent_reader_costs_nothing_while_there_is_room(console_pipe: Pipe) -> None:
    stream = console_pipe.console.stream(b"", "x")
    stream.write(b"x" * 9_999 + b"\n", 0.0)
    console_pipe.console.tick(60.0)
    assert console_pipe.console.idle  # the end of the job does not wait for that reader
    stream.write(b"y\n", 61.0)
    got = console_pipe.read_all(62.0)
    assert got == b"x" * 9_999 + b"\ny\n"


def test_the_buffer_is_bounded_whatever_comes(console_pipe: Pipe) -> None:
    stream = console_pipe.console.stream(b"[w-0] ", "x")
    for n in range(2_000):
        now = 0.0 if n < 200 else 10.0
        stream.write(b"z" * 999 + b"\n", now)
        console_pipe.console.say("holdfast: y" * 100, now)
        console_pipe.console.tick(now)
    waiting = console_pipe.console.unshown_bytes - sum(console_pipe.console.left_out.values())
    assert 100_000 < waiting < 500_000


def test_a_reader_that_left_is_noticed_once(console_pipe: Pipe) -> None:
    os.close(console_pipe.read_fd)
    console_pipe.read_fd = -1
    stream = console_pipe.console.stream(b"", "x")
    stream.write(b"a\n", 0.0)
    stream.write(b"b\n", 0.0)
    console_pipe.console.say("holdfast: c", 0.0)
    assert console_pipe.console.closed
    assert console_pipe.console.idle
    assert console_pipe.console.wait_fd is None
    assert len(console_pipe.console.take_notes()) == 1
    console_pipe.console.drain()


def test_the_callers_description_keeps_its_flags(console_pipe: Pipe) -> None:
    assert os.get_blocking(console_pipe.write_fd)
    console_pipe.console.close()
    os.write(console_pipe.write_fd, b"ours")
    assert console_pipe.read() == b"ours"


def test_drain_waits_for_the_reader(console_pipe: Pipe) -> None:
    stream = console_pipe.console.stream(b"", "x")
    stream.write(b"line\n" * 10_000, 0.0)
    child = os.fork()
    if child == 0:
        os.set_blocking(console_pipe.read_fd, True)
        left = 50_000
        while left > 0:
            left -= len(os.read(console_pipe.read_fd, left))
        os._exit(0)
    console_pipe.console.drain(stall_s=20)
    assert console_pipe.console.unshown_bytes == 0
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_full_file_is_tried_again_and_said_when_something_is_lost(tmp_path: Path) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    console = Console(Outlet(fd), limit_bytes=1000)
    stream = console.stream(b"", "/logs/x")
    stream.write(b"a" * 500 + b"\n", 0.0)
    assert console.wait_fd is None
    assert console.idle
    assert console.next_wake() == pytest.approx(5.0)
    stream.write(b"b" * 500 + b"\n", 1.0)
    console.tick(5.0)
    assert console.next_wake() == pytest.approx(10.0)
    stream.write(b"c\n", 6.0)
    (note,) = console.take_notes()
    assert os.strerror(errno.ENOSPC).lower() in note
    console.drain()
    console.close()
    os.close(fd)


def test_a_file_that_takes_a_part_keeps_the_rest_for_later(tmp_path: Path) -> None:
    screen = Screen(tmp_path / "screen")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        screen.console.say("holdfast: one", 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    screen.console.say("holdfast: two", 1.0)
    assert screen.text == b"holdfast: "
    assert screen.console.next_wake() == pytest.approx(5.0)
    screen.console.tick(5.0)
    assert screen.text == b"holdfast: one\nholdfast: two\n"
    assert console_state(screen.console) == "idle"
    screen.console.close()


def test_a_silent_terminal_with_room_is_not_waited_for_twice(console_pipe: Pipe) -> None:
    stream = console_pipe.console.stream(b"", "x")
    stream.write(b"x" * 9_999 + b"\n", 0.0)
    assert console_pipe.console.next_wake() == pytest.approx(5.0)
    console_pipe.console.tick(5.0)
    assert console_pipe.console.next_wake() is None


def test_a_socket_is_written_without_waiting() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outlet = Outlet(ours.fileno())
        assert outlet.kind is OutletKind.SOCKET
        console = Console(outlet, limit_bytes=100_000)
        stream = console.stream(b"", "x")
        while not console.full:
            stream.write(b"x" * 999 + b"\n", 0.0)
        assert ours.getblocking()
        theirs.setblocking(False)
        got = 0
        while console.unshown_bytes:
            got += len(theirs.recv(1 << 20))
            console.on_writable(0.0)
        while True:
            try:
                got += len(theirs.recv(1 << 20))
            except BlockingIOError:
                break
        assert got % 1000 == 0
        assert got > 100_000
        theirs.close()
        stream.write(b"gone\n", 0.0)
        assert console.closed
        console.close()


def test_a_terminal_is_written_without_waiting() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    console, other = open_consoles(slave, slave)
    assert console is other
    assert console.name == "the terminal"
    stream = console.stream(b"[w-0] ", "x")
    stream.write(b"x" * 200_000 + b"\n", 0.0)
    assert console.unshown_bytes > 0
    assert os.get_blocking(slave)
    got = b""
    while len(got) < 200_007:
        got += os.read(master, 65536)
        console.on_writable(0.0)
    assert got == b"[w-0] " + b"x" * 200_000 + b"\n"
    os.close(slave)
    os.close(master)
    stream.write(b"hung up\n", 1.0)
    assert console.closed
    console.close()


def test_a_file_keeps_the_position_it_has(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb", buffering=0) as file:
        file.write(b"before\n")
        console = Console(Outlet(file.fileno()))
        console.say("holdfast: middle")
        console.close()
        file.write(b"after\n")
    assert (tmp_path / "out").read_bytes() == b"before\nholdfast: middle\nafter\n"


def test_two_pipes_are_two_consoles_and_one_pipe_is_one() -> None:
    fds = [*os.pipe(), *os.pipe()]
    one, two = open_consoles(fds[1], fds[3])
    assert one is not two
    same, also = open_consoles(fds[1], fds[1])
    assert same is also
    for console in (one, two, same):
        console.close()
    for fd in fds:
        os.close(fd)


def test_a_closed_stdout_is_no_trouble() -> None:
    fd = os.open(os.devnull, os.O_WRONLY)
    os.close(fd)
    out, err = open_consoles(fd, fd)
    out.say("holdfast: nobody")
    err.stream(b"", "x").write(b"a\n", 0.0)
    assert out.closed
    assert err.idle
    out.drain()
    out.close()


def test_the_patient_way_takes_small_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def refused(path: object, *args: object, **kwargs: object) -> int:
        if str(path).startswith("/proc/self/fd/"):
            raise PermissionError(errno.EACCES, "not yours")
        return real_open(path, *args, **kwargs)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(os, "open", refused)
    pipe = Pipe()
    console = pipe.console
    stream = console.stream(b"", "x")
    stream.write(b"0123456789\n" * 2_000, 0.0)
    assert console.unshown_bytes > 0
    assert pipe.read_all(0.0) == b"0123456789\n" * 2_000
    pipe.close()
