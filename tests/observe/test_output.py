"""From the workers' pipes to their files: whole, bounded, and also on a full disk."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.act.console import Console
from holdfast.act.nonblocking_writer import Outlet
from holdfast.errors import BadUsage
from holdfast.launch.worker_output_options import Std, parse_std, shown
from holdfast.observe.log_file import LogFile, amount
from holdfast.observe.output_places import OutputPlaces
from holdfast.observe.output_pump import PIPE_BYTES, PIPES_BYTES, OutputPump, line_prefix
from holdfast.observe.worker_stream import TAIL_BYTES, Stream, enlarge, pipe_size
from holdfast.reactor import Reactor


class House:
    """A pump with its reactor, its screens (two files, unless given) and what it said."""

    def __init__(self, home: Path, stdout: Console | None = None, *, folds: bool = False) -> None:
        self.home = home
        self.now = 0.0
        self.reactor = Reactor(lambda: self.now)
        self.said: list[str] = []
        self.screens: list[Console] = []
        for name, given in (("out", stdout), ("err", None)):
            if given is None:
                fd = os.open(home / name, os.O_WRONLY | os.O_CREAT, 0o600)
                given = Console(Outlet(fd))
                os.close(fd)
            self.screens.append(given)
        lost_peer = (lambda exception: "Connection" in exception) if folds else None
        places = OutputPlaces(self.screens[0], self.screens[1], self.said.append)
        self.pump = OutputPump(self.reactor, places, workers=4, lost_peer=lost_peer)
        self.writers: dict[int, tuple[int, int]] = {}

    def start(self, rank: int, *, show_stdout: bool = True, show_stderr: bool = True) -> None:
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        self.pump.add(
            rank,
            "worker",
            out_r,
            err_r,
            self.home / f"worker-{rank}",
            show_stdout=show_stdout,
            show_stderr=show_stderr,
        )
        self.writers[rank] = (out_w, err_w)

    def write(self, rank: int, data: bytes, stream: int = 0) -> None:
        os.write(self.writers[rank][stream], data)

    def turn(self, now: float = 0.0, longest_s: float = 0.0) -> int:
        """One pass over what is ready; how many fds that were."""
        self.pump.next_wake()
        self.now = now
        return self.reactor.wait(longest_s=longest_s)

    def live(self) -> None:
        """From here on by the real clock, with the pump's own deadlines."""
        self.reactor.now = time.monotonic
        self.reactor.deadlines(self.pump.next_wake, self.pump.tick)

    def leave(self, rank: int) -> None:
        for fd in self.writers.pop(rank):
            os.close(fd)

    def log(self, rank: int, stream: str = "stdout") -> bytes:
        return (self.home / f"worker-{rank}" / f"{stream}.log").read_bytes()

    def close(self) -> None:
        self.pump.close(0.0)
        for rank in list(self.writers):
            self.leave(rank)
        for screen in self.screens:
            screen.close()
        self.reactor.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def test_each_stream_has_its_file_and_its_place_on_the_terminal(house: House) -> None:
    house.start(0)
    house.start(1)
    house.write(0, b"a\n")
    house.write(1, b"b\n")
    house.write(1, b"oops\n", stream=1)
    house.turn(5.0)
    assert (house.log(0), house.log(1), house.log(1, "stderr")) == (b"a\n", b"b\n", b"oops\n")
    assert sorted((house.home / "out").read_bytes().splitlines()) == [b"[worker-0] a", b"[worker-1] b"]
    assert (house.home / "err").read_bytes() == b"[worker-1] oops\n"
    assert house.pump.last_output_at(0) == 5.0
    assert house.pump.bytes_seen(1) == 7
    assert (house.home / "worker-0").stat().st_mode & 0o777 == 0o700
    assert (house.home / "worker-0" / "stdout.log").stat().st_mode & 0o777 == 0o600


def test_what_is_redirected_is_in_the_file_only(house: House) -> None:
    house.start(0, show_stdout=False)
    house.write(0, b"quiet\n")
    house.write(0, b"loud\n", stream=1)
    house.turn()
    assert house.log(0) == b"quiet\n"
    assert (house.home / "out").read_bytes() == b""
    assert (house.home / "err").read_bytes() == b"[worker-0] loud\n"


def test_the_file_holds_the_bytes_as_they_came(house: House) -> None:
    house.start(0)
    data = bytes(range(256)) * 20 + b"\r 10%\r 20%\n" + "é".encode()[:1] + b"no newline"
    house.write(0, data)
    house.turn()
    house.pump.finish(0, 1.0)
    assert house.log(0) == data


def test_a_finished_worker_is_read_to_the_end_though_a_child_keeps_the_pipe_open(house: House) -> None:
    house.start(0)
    house.write(0, b"x" * 60_000 + b"end\n")
    assert house.pump.last_output_at(0) is None
    house.pump.finish(0, 2.0)  # the write ends are still open
    assert house.log(0).endswith(b"end\n")
    assert house.pump.tail(0).endswith("end\n")
    assert house.turn() == 0
    house.pump.finish(0, 3.0)
    with pytest.raises(BrokenPipeError):
        house.write(0, b"late")


def test_the_next_attempt_begins_anew(house: House) -> None:
    house.start(0)
    house.write(0, b"first\n")
    house.pump.finish(0, 1.0)
    house.leave(0)
    house.start(0)
    assert house.pump.tail(0) == ""
    assert house.pump.last_output_at(0) is None
    house.write(0, b"second\n")
    house.turn(2.0)
    assert house.pump.tail(0) == "second\n"


def test_the_end_of_a_stream_is_noticed_without_finish(house: House) -> None:
    house.start(0)
    house.leave(0)
    assert house.turn() == 2
    assert house.turn() == 0
    assert not house.reactor.watching


def test_last_words_are_stderr_s_or_else_stdout_s_and_bounded(house: House) -> None:
    house.start(0)
    assert house.pump.tail(0) == ""
    assert house.pump.tail(7) == ""
    house.write(0, b"from stdout\n")
    house.turn()
    assert house.pump.tail(0) == "from stdout\n"
    for n in range(3):
        house.write(0, (f"{n} " + "é" * 10_000).encode(), stream=1)
        house.turn()
    words = house.pump.tail(0)
    assert words == "é" * 4096
    house.write(0, b"\xff" * 20_000, stream=1)
    house.turn()
    assert len(house.pump.tail(0).encode()) <= 8192
    assert len(house.pump.tail(0, TAIL_BYTES * 2).encode()) <= TAIL_BYTES * 2


def test_last_words_begin_with_a_whole_line(tmp_path: Path) -> None:
    """In the rest of a line a secret cannot be seen: `-p SECRET` behind `docker login`."""
    house = House(tmp_path)
    house.start(0, show_stdout=False)
    line = "docker login -u a -p SECRET\n"
    house.write(0, (line * 1000).encode(), stream=1)
    house.turn()
    for limit in (*range(60, 120), TAIL_BYTES, 2 * TAIL_BYTES):
        words = house.pump.tail(0, limit)
        assert words == line * words.count("\n") and len(words) > min(limit, TAIL_BYTES) - 2 * len(line)


def test_a_noisy_worker_leaves_room_for_the_others(tmp_path: Path) -> None:
    house = House(tmp_path)
    for rank in range(16):
        house.start(rank, show_stdout=False)
        enlarge(house.writers[rank][0], 1 << 20)
        os.set_blocking(house.writers[rank][0], False)
        with pytest.raises(BlockingIOError):
            while True:
                house.write(rank, b"x" * 4096)
    house.turn()
    seen = [house.pump.bytes_seen(rank) for rank in range(16)]
    assert min(seen) >= 30_000
    assert max(seen) <= 32 * 1024
    house.close()


def test_all_pipes_together_stay_within_bounds() -> None:
    sizes = []
    fds = []
    for _ in range(2):
        fds += list(os.pipe())
    sizes = [enlarge(fd, PIPES_BYTES // 128) for fd in fds[::2]]
    assert sizes == [PIPES_BYTES // 128] * 2
    assert enlarge(fds[0], 4096) == pipe_size(fds[0]) == PIPES_BYTES // 128
    for fd in fds:
        os.close(fd)


@pytest.mark.real
def test_an_unprivileged_user_gets_what_can_be_had() -> None:
    """In a child, since it gives its privileges up: as root the kernel grants any size."""
    read_fd, write_fd = os.pipe()
    limit = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setuid(65534)
        os._exit(0 if 4096 < enlarge(read_fd, limit * 8) <= limit else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(read_fd)
    os.close(write_fd)


def test_a_slow_terminal_holds_back_only_whoever_it_shows(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    house = House(tmp_path, Console(Outlet(write_fd), limit_bytes=200_000))
    house.start(0)
    house.start(1, show_stdout=False)
    line = b"0123456789abcde\n"
    sent = 0
    while not house.pump.paused:
        house.write(0, line * 1000)
        sent += 1000
        house.turn()
    kept = len(house.log(0))
    house.write(0, line)
    sent += 1
    house.write(1, b"free\n")
    house.turn()
    assert len(house.log(0)) == kept
    assert house.log(1) == b"free\n"
    assert not house.pump.idle
    got = b""
    now = 0.0
    while True:
        now += 4.0
        busy = house.turn(now)
        try:
            got += os.read(read_fd, 20_000)
        except BlockingIOError:
            if not busy:
                break
    assert got.replace(b"[worker-0] ", b"") == line * sent
    assert len(house.log(0)) == sent * len(line)
    assert len(house.said) == 1
    assert "read more slowly than the workers write" in house.said[0]
    house.close()
    os.close(read_fd)
    os.close(write_fd)


def test_a_stuck_terminal_does_not_stop_the_training(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    house = House(tmp_path, Console(Outlet(write_fd), limit_bytes=200_000))
    house.start(0)
    line = b"0123456789abcde\n"
    for n in range(500):
        os.set_blocking(house.writers[0][0], False)
        house.write(0, line * 100)
        house.turn(n * 0.1)
        wake = house.pump.next_wake()
        if house.pump.paused and wake is not None:
            house.pump.tick(wake)
    house.pump.finish(0, 50.0)
    assert house.log(0) == line * 50_000
    assert house.pump.idle
    assert len(house.said) == 1
    assert "has taken nothing for 5 s" in house.said[0]
    got = b""
    for _ in range(100):
        house.turn(60.0)
        try:
            got += os.read(read_fd, 1 << 20)
        except BlockingIOError:
            break
    assert b"is left out here; it is whole in " + str(tmp_path / "worker-0" / "stdout.log").encode() in got
    house.close()
    os.close(read_fd)
    os.close(write_fd)


def test_a_terminal_that_closes_is_said_and_the_files_go_on(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    house = House(tmp_path, Console(Outlet(write_fd)))
    house.start(0)
    os.close(read_fd)
    for _ in range(3):
        house.write(0, b"x\n")
        house.turn()
    assert house.log(0) == b"x\n" * 3
    assert len(house.said) == 1
    assert "is closed" in house.said[0]
    house.close()
    os.close(write_fd)


def test_a_full_disk_is_said_once_counted_and_the_worker_goes_on(house: House) -> None:
    for rank in range(2):
        (house.home / f"worker-{rank}").mkdir(mode=0o700)
        for stream in ("stdout", "stderr"):
            (house.home / f"worker-{rank}" / f"{stream}.log").symlink_to("/dev/full")
        house.start(rank)
    for second in range(20):
        for rank in range(2):
            house.write(rank, b"y" * 4999 + b"\n")
            house.write(rank, b"z" * 999 + b"\n", stream=1)
        house.turn(float(second))
    (said,) = house.said
    assert os.strerror(errno.ENOSPC).lower() in said
    assert "worker-0 stdout.log" in said
    assert "Free space; the terminal still shows it" in said
    assert (house.home / "out").stat().st_size > 200_000
    house.pump.finish(0, 20.0)
    assert len(house.said) == 1
    house.pump.finish(1, 20.0)
    assert house.said[1].startswith("4 log files are not whole: they lack 240.0 kB of the workers' output")


def test_a_disk_that_recovers_is_used_again_and_the_gap_is_marked(house: House) -> None:
    directory = house.home / "worker-0"
    directory.mkdir(mode=0o700)
    (directory / "stdout.log").symlink_to("/dev/full")
    house.start(0)
    house.write(0, b"lost\n")
    house.turn(0.0)
    (directory / "stdout.log").unlink()
    house.write(0, b"lost too\n")
    house.turn(4.0)
    house.write(0, b"kept\n")
    house.turn(6.0)
    house.write(0, b"and on\n")
    house.turn(6.1)
    assert house.log(0) == b"\n[holdfast: 14 bytes of output missing here]\nkept\nand on\n"
    assert "takes output again; it lacks 14 bytes" in house.said[1]
    house.pump.finish(0, 7.0)
    assert house.said[2:] == [f"worker-0 stdout.log: {directory / 'stdout.log'} lacks 14 bytes of its output."]


def test_a_write_that_stops_half_way_is_counted_to_the_byte(tmp_path: Path) -> None:
    said: list[str] = []
    file = LogFile(tmp_path / "w" / "out.log", "w-0 stdout", lambda text, _: said.append(text), shown=False, now=0.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        file.write(b"a" * 3000, 0.0)
        file.write(b"b" * 3000, 1.0)
        file.write(b"c" * 10, 2.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.lost_bytes == 2010
    file.write(b"d\n", 6.5)
    file.close()
    text = (tmp_path / "w" / "out.log").read_bytes()
    assert text == b"a" * 3000 + b"b" * 1000 + b"\n[holdfast: 2.0 kB of output missing here]\nd\n"
    assert file.lost_bytes == 2010
    assert len(said) == 2
    assert "it is redirected, so nothing shows it meanwhile" in said[0]


def test_a_directory_that_cannot_be_made_is_no_end(house: House) -> None:
    (house.home / "worker-0").write_text("a file is in the way")
    house.start(0)
    house.write(0, b"shown\n")
    house.turn()
    assert (house.home / "out").read_bytes() == b"[worker-0] shown\n"
    assert len(house.said) == 1
    house.pump.finish(0, 1.0)
    assert "lacks 6 bytes of its output" in house.said[1]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (3 * 10**12, "3000.0 GB")],
)
def test_amounts_have_units(count: int, text: str) -> None:
    assert amount(count) == text


def test_prefix_is_role_and_rank_unless_torchruns_variable_says_otherwise() -> None:
    assert line_prefix("worker", 5, 1, {}) == "[worker-5] "
    env = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}${local_rank}/${rank}]${other}:"}
    assert line_prefix("default", 5, 1, env) == "[default1/5]${other}:"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {0: Std.NONE, 9: Std.NONE}),
        ("1", {0: Std.OUT, 9: Std.OUT}),
        ("2", {0: Std.ERR}),
        (" 3 ", {0: Std.BOTH}),
        ("0:1,1:2", {0: Std.OUT, 1: Std.ERR, 2: Std.NONE}),
        ("0:1, 12:3", {0: Std.OUT, 12: Std.BOTH, 1: Std.NONE}),
    ],
)
def test_std_values_are_torchruns(text: str, expected: dict[int, Std]) -> None:
    choice = parse_std(text)
    assert {rank: choice.of(rank) for rank in expected} == expected


@pytest.mark.parametrize("text", ["", "4", "-1", "out", "0:4", "0:1,", "0:1;1:2", "a:1", "0:1,0:2", "0:", ":1", "²"])
def test_std_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_std(text, "--tee")
    assert "--tee" in caught.value.message
    assert "Expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both)" in caught.value.message
    assert caught.value.hint


def test_redirects_silence_and_tee_speaks() -> None:
    for redirects, tee in itertools.product(range(4), repeat=2):
        out, err = shown(parse_std(str(redirects)), parse_std(str(tee)), 0)
        assert out == (not redirects & 1 or bool(tee & 1))
        assert err == (not redirects & 2 or bool(tee & 2))
    assert shown(parse_std("1:3"), parse_std("0"), 0) == (True, True)
    assert shown(parse_std("1:3"), parse_std("0"), 1) == (False, False)


def pump_real(house: House, programs: list[str], deadline_s: float = 60.0) -> None:
    """Run Python programs as workers to their end, with real pipes and the real clock."""
    ends = time.monotonic() + deadline_s
    children = []
    for rank, program in enumerate(programs):
        house.start(rank)
        out, err = house.writers[rank]
        children.append(subprocess.Popen([sys.executable, "-c", program], stdout=out, stderr=err))
        house.leave(rank)
    house.live()
    while house.reactor.watching:
        assert time.monotonic() < ends
        house.reactor.wait(longest_s=1.0)
    for rank, child in enumerate(children):
        assert child.wait(timeout=90) == 0
        house.pump.finish(rank, time.monotonic())


@pytest.mark.real
def test_64_mib_of_two_workers_arrive_whole_in_bounded_memory(house: House) -> None:
    program = """
import sys
line = b"worker %s step 12345 loss 0.1234 and some more words to fill it\\n"
for _ in range(64):
    sys.stdout.buffer.write((line * 16384)[:524288])
sys.stdout.buffer.write(b"the end")
"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pump_real(house, [program, program])
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    expected = 64 * 524288 + len("the end")
    assert [len(house.log(rank)) for rank in range(2)] == [expected, expected]
    assert grown_kib < 16 * 1024
    kept = {b"[worker-0] ": 0, b"[worker-1] ": 0}
    with (house.home / "out").open("rb") as file:
        for line in file:
            kept[line[:11]] += len(line) - 11
    assert all(expected < count <= expected + 200 for count in kept.values())


class Refiller:
    """A sink that puts into the pipe what was just taken out of it: a child that never stops."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def write(self, block: bytes, now: float) -> None:
        os.write(self.fd, block)

    def close(self, now: float) -> None:
        """Nothing is kept."""


def test_what_is_drained_is_no_more_than_the_pipe_holds(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    file = LogFile(tmp_path / "log", "w-0 stdout", lambda *_: None, shown=True, now=0.0)
    stream = Stream(read_fd, "w-0 stdout", file, Refiller(write_fd))
    os.write(write_fd, b"x" * 1000)
    stream.drain(0.0)
    assert 1000 <= stream.bytes_seen <= pipe_size(write_fd)
    stream.close(0.0)
    os.close(write_fd)


def test_each_gap_is_marked_with_its_own_size(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, "w-0 stdout", lambda *_: None, shown=True, now=0.0)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    for n, lost in enumerate((b"x" * 5, b"y" * 7)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
        try:
            file.write(lost, n * 10.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        file.write(b"on\n", n * 10.0 + 5.0)
    file.close()
    gaps = [line for line in path.read_text().splitlines() if "missing" in line]
    assert gaps == [f"[holdfast: {count} bytes of output missing here]" for count in (5, 7)]
    assert file.lost_bytes == 12


@pytest.mark.real
def test_a_background_child_that_never_stops_writing_is_left_behind(house: House) -> None:
    house.start(0)
    child = subprocess.Popen(["yes"], stdout=house.writers[0][0])
    house.leave(0)
    while not house.pump.bytes_seen(0):
        assert house.turn(longest_s=20)
    before = house.pump.bytes_seen(0)
    house.pump.finish(0, 1.0)
    assert child.wait(timeout=90) == -signal.SIGPIPE
    assert house.pump.bytes_seen(0) - before <= PIPE_BYTES
    assert house.log(0).startswith(b"y\ny\n")


@pytest.mark.real
def test_a_prompt_is_seen_while_the_worker_waits(house: House) -> None:
    program = """
import os, sys, time
sys.stdout.write("Continue? "); sys.stdout.flush()
for _ in range(2000):
    if os.path.exists(%r):
        break
    time.sleep(0.01)
print("yes")
"""
    flag = house.home / "seen"
    house.start(0)
    out, err = house.writers[0]
    child = subprocess.Popen([sys.executable, "-c", program % str(flag)], stdout=out, stderr=err)
    house.leave(0)
    shown_early = False
    house.live()
    while house.reactor.watching:
        house.reactor.wait(longest_s=5.0)
        if (house.home / "out").read_bytes() == b"[worker-0] Continue? ":
            shown_early = True
            flag.touch()
    assert child.wait(timeout=90) == 0
    house.pump.finish(0, time.monotonic())
    assert shown_early
    assert (house.home / "out").read_bytes() == b"[worker-0] Continue? yes\n"


LOST = b'Traceback (most recent call last):\n  File "a.py", line %d, in <module>\nConnectionResetError: by peer\n'


@pytest.fixture
def folding(tmp_path: Path) -> Iterator[House]:
    it = House(tmp_path, folds=True)
    yield it
    it.close()


def on_stderr(house: House) -> str:
    return (house.home / "err").read_text(encoding="utf-8")


def test_lost_connections_are_one_line_on_the_terminal_and_whole_in_the_logs(folding: House) -> None:
    for rank in range(3):
        folding.start(rank)
    folding.pump.lose("the exit of rank 1", 1, 1.0)
    for rank in (2, 0):
        folding.write(rank, LOST % rank, 1)
    folding.turn(1.0)
    assert on_stderr(folding) == ""
    for rank in range(3):
        folding.leave(rank)
        folding.pump.finish(rank, 1.1)
    line = "ConnectionResetError: by peer (after the exit of rank 1; whole text in the logs)\n"
    assert on_stderr(folding) == f"[worker-0, 2] {line}"
    assert [folding.log(rank, "stderr") for rank in (0, 2)] == [LOST % 0, LOST % 2]


def test_usual_lines_do_not_wait_for_a_traceback_of_another_rank(folding: House) -> None:
    for rank in range(2):
        folding.start(rank)
    folding.write(0, b"before\n" + LOST % 1 + b"after\nunfinished", 1)
    folding.write(1, b"usual\n", 1)
    folding.turn(1.0)
    assert sorted(on_stderr(folding).splitlines()) == ["[worker-0] before", "[worker-1] usual"]
    assert folding.pump.next_wake() == 2.0
    folding.pump.tick(2.0)
    folding.pump.tick(3.0)
    told = "".join(f"[worker-0] {line}\n" for line in [*(LOST % 1).decode().splitlines(), "after"])
    assert on_stderr(folding).endswith(f"{told}[worker-0] unfinished")


def test_a_traceback_that_comes_in_pieces_is_the_same_text(folding: House) -> None:
    folding.start(0)
    for at in range(0, len(LOST), 5):
        folding.write(0, (LOST % 1)[at : at + 5], 1)
        folding.turn(1.0)
    folding.leave(0)
    folding.pump.finish(0, 1.0)
    assert on_stderr(folding) == "".join(f"[worker-0] {line}\n" for line in (LOST % 1).decode().splitlines())


def test_crashes_are_folded_though_their_first_line_comes_in_pieces(folding: House) -> None:
    """faulthandler writes a line in several calls."""
    for rank in range(2):
        folding.start(rank)
    for rank in range(2):
        for piece in (
            b"Fatal Python error: ",
            b"Aborted",
            b"\n\nCurrent thread",
            b" 0x7f%da (most recent" % rank,
            b" call)\n",
        ):
            folding.write(rank, piece, 1)
            folding.turn(1.0)
    for rank in range(2):
        folding.leave(rank)
        folding.pump.finish(rank, 1.1)
    told = ["Fatal Python error: Aborted", "", "Current thread 0x7f0a (most recent call)"]
    line = "[worker-1] Fatal Python error: Aborted (the same traceback as rank 0; whole text in the logs)\n"
    assert on_stderr(folding) == "".join(f"[worker-0] {each}\n" for each in told) + line


def test_a_next_attempt_knows_no_exit_of_the_last_one(folding: House) -> None:
    for loses in (True, False):
        folding.start(0)
        if loses:
            folding.pump.lose("the exit of rank 1", 1, 1.0)
        folding.write(0, LOST % 1, 1)
        folding.turn(1.0)
        folding.leave(0)
        folding.pump.finish(0, 1.0)
    assert [line[:20] for line in on_stderr(folding).splitlines()] == [
        "[worker-0] Connectio",
        "[worker-0] Traceback",
        '[worker-0]   File "a',
        "[worker-0] Connectio",
    ]


def test_an_endless_line_behind_a_traceback_is_shown_and_not_collected(folding: House) -> None:
    folding.start(0)
    folding.write(0, LOST % 1, 1)
    for _ in range(20):
        folding.write(0, b"x" * 8192, 1)
        folding.turn(1.0)
    assert len(on_stderr(folding)) > 20 * 8192 - 64 * 1024


def test_a_prefix_of_another_form_names_the_ranks_behind_it(folding: House) -> None:
    pipes = [os.pipe() for _ in range(4)]
    for rank in range(2):
        (out_r, _), (err_r, _) = pipes[2 * rank : 2 * rank + 2]
        folding.pump.add(rank, "worker", out_r, err_r, folding.home / f"w{rank}", prefix=f"<{rank}>: ")
    folding.pump.lose("the stop", None, 1.0)
    for _, write in pipes[1::2]:
        os.write(write, LOST % 1)
    folding.turn(1.0)
    for _, write in pipes:
        os.close(write)
    for rank in range(2):
        folding.pump.finish(rank, 1.0)
    assert (
        on_stderr(folding)
        == "<0>: ranks 0 and 1: ConnectionResetError: by peer (after the stop; whole text in the logs)\n"
    )


def test_bars_of_several_workers_are_a_line_a_second_each(folding: House) -> None:
    for rank in range(2):
        folding.start(rank)
    for step in range(30):
        for rank in range(2):
            folding.write(rank, b"\r%d of 30" % step, 1)
        folding.turn(step / 10)
        folding.pump.tick(step / 10)
    for rank in range(2):
        folding.write(rank, b"\r30 of 30\n", 1)
        folding.leave(rank)
        folding.pump.finish(rank, 3.0)
    lines = on_stderr(folding).replace("\r", "\n").splitlines()
    for rank in range(2):
        of_rank = [line for line in lines if line.startswith(f"[worker-{rank}] ")]
        assert len(of_rank) <= 5, of_rank
        assert of_rank[-1] == f"[worker-{rank}] 30 of 30"
    assert folding.log(0, "stderr").count(b"\r") == 31
