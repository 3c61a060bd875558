"""`logs` and `stop`: files as they stand, and the supervisor's door."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.log_file import LogFile
from holdfast.reactor import Reactor
from holdfast.record.job_directory import JobPlace, claim
from holdfast.record.rotated_logs import tail_mark
from holdfast.record.state_directory import job_dir
from holdfast.report.log_files import LogPart, copy
from holdfast.wire.control_socket import Control, Line, Reply, StopLine
from typed_here import Cli, cli, home

__all__ = ["cli", "home"]  # fixtures


@pytest.fixture
def two_attempts(home: Path) -> Iterator[JobPlace]:
    """A running job with two attempts of two ranks."""
    place = claim(home, name="train", now=1000.0)
    for attempt in (1, 2):
        for rank in (0, 1):
            _log(place, attempt, rank, "stdout", f"a{attempt} r{rank} one\na{attempt} r{rank} two\n")
            _log(place, attempt, rank, "stderr", f"a{attempt} r{rank} oops")
    yield place
    place.lock.release()


def _log(place: JobPlace, attempt: int, rank: int, stream: str, text: str, at: float | None = None) -> Path:
    """`at`: when it was read; attempt by attempt and rank by rank unless given."""
    path = job_dir(place.home, place.job_id) / f"attempt-{attempt}" / f"worker-{rank}" / f"{stream}.log"
    now = 100.0 * attempt + 10 * rank + (stream == "stderr") if at is None else at
    log = LogFile(path, "w", lambda text, about: None, shown=False, now=now)
    log.write(text.encode(), now)
    log.close()
    return path


def test_the_last_attempt_with_the_worker_in_front_of_each_line(cli: Cli, two_attempts: JobPlace) -> None:
    status, out, err = cli("logs", "train")
    assert status == 0 and err == "holdfast: attempt 2, the last; others with --attempt 1\n"
    assert out.splitlines() == [
        "[worker-0 stdout] a2 r0 one",
        "[worker-0 stdout] a2 r0 two",
        "[worker-0 stderr] a2 r0 oops",
        "[worker-1 stdout] a2 r1 one",
        "[worker-1 stdout] a2 r1 two",
        "[worker-1 stderr] a2 r1 oops",
    ]


def test_one_log_comes_as_it_stands(cli: Cli, two_attempts: JobPlace) -> None:
    assert cli("logs", two_attempts.job_id, "--attempt", "1", "--rank", "1", "--stderr") == (0, "a1 r1 oops", "")
    assert cli("logs", "train", "--attempt", "2", "--rank", "0", "--stdout", "--tail", "1")[1] == "a2 r0 two\n"
    assert cli("logs", "train", "--rank", "0", "--stdout", "--tail", "0")[1] == ""


SECRET = "root:x:0:0"


def _linked(path: Path, to: Path) -> None:
    """What a worker can do with its log, or with the folder of it."""
    path.rename(path.with_name("before"))
    path.symlink_to(to)


@pytest.mark.parametrize("which", ["log", "rotated", "rank", "attempt", "times"])
def test_a_log_that_a_worker_has_made_a_link_shows_no_other_file(
    cli: Cli, two_attempts: JobPlace, tmp_path: Path, which: str
) -> None:
    """Root may read the logs of a user's job, and sees no file that the user may not read."""
    (elsewhere := tmp_path / "worker-1").mkdir()
    for name in ("stdout.log", "stderr.log"):
        (elsewhere / name).write_text(f"{SECRET}\n")
    attempt = job_dir(two_attempts.home, two_attempts.job_id) / "attempt-2"
    log = attempt / "worker-1" / "stdout.log"
    match which:
        case "log":
            _linked(log, elsewhere / "stdout.log")
        case "rotated":
            log.with_name("stdout.log.1").symlink_to(elsewhere / "stdout.log")
        case "times":
            _linked(log.with_name("stdout.times"), elsewhere / "stdout.log")
        case "rank":
            _linked(attempt / "worker-1", elsewhere)
        case _:
            _linked(attempt, tmp_path)
    for words in (
        (),
        ("--timestamps",),
        ("--merge",),
        ("--tail", "1"),
        ("--attempt", "2"),
        ("--rank", "1"),
        ("--json",),
    ):
        status, out, err = cli("logs", "train", *words)
        assert status in (0, 2) and SECRET not in out + err and "Traceback" not in err, (words, out, err)
        if which in ("rotated", "times") and words == ():
            assert "[worker-1 stdout] a2 r1 two" in out, out


def test_an_attempt_or_rank_that_is_not_there(cli: Cli, two_attempts: JobPlace) -> None:
    status, out, err = cli("logs", "train", "--attempt", "7")
    assert (status, out) == (2, "") and "no such attempt: it has 1, 2" in err
    status, out, err = cli("logs", "train", "--rank", "9")
    assert (status, out) == (2, "") and "attempt 2 of job" in err and "it has ranks 0 and 1" in err
    assert cli("logs", "train", "--rank", "-1")[0] == 2


def test_a_job_without_logs(cli: Cli, home: Path) -> None:
    place = claim(home, name="train", now=1000.0)
    assert cli("logs", "train") == (0, "", f"holdfast: job {place.job_id} has written no logs yet\n")
    assert "it has no logs yet" in cli("logs", "train", "--attempt", "1")[2]
    place.lock.release()


def test_logs_elsewhere_are_found_through_a_link(cli: Cli, home: Path, tmp_path: Path) -> None:
    place = claim(home, name="train", now=1000.0, log_dir=tmp_path / "elsewhere")
    assert place.logs == tmp_path / "elsewhere" / place.job_id
    assert cli("logs", "train")[2] == f"holdfast: job {place.job_id} has written no logs yet\n"
    assert stat.S_IMODE(place.logs.stat().st_mode) == 0o700
    (place.logs / "attempt-1" / "worker-0").mkdir(parents=True)
    (place.logs / "attempt-1" / "worker-0" / "stdout.log").write_text("far away\n")
    assert cli("logs", "train")[1] == "far away\n"
    place.lock.release()


def test_binary_garbage_passes_unchanged(home: Path, two_attempts: JobPlace) -> None:
    garbage = bytes(range(256)) * 100
    path = job_dir(home, two_attempts.job_id) / "attempt-2" / "worker-0" / "stdout.log"
    path.write_bytes(garbage)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "logs", "train", "--rank", "0", "--stdout"],
        capture_output=True,
        timeout=90,
        check=True,
    )
    assert done.stdout == garbage


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=20), st.booleans(), st.data())
def test_tail_is_the_last_lines_whatever_the_block_size(lines: list[bytes], ended: bool, data: st.DataObject) -> None:
    import tempfile

    text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    wanted = data.draw(st.integers(0, 25))
    block = data.draw(st.sampled_from([1, 2, 7, 1 << 20]))
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        path = Path(place) / "log"
        path.write_bytes(text)
        patch.setattr("holdfast.report.log_files.BLOCK_BYTES", block)
        mark = tail_mark(path, wanted)
        shown = text[mark[1] if mark is not None else 0 :]
        part = LogPart(attempt=1, role="w", rank=0, stream="stdout", path=str(path))
        out = bytearray()
        assert copy(part, out.extend, prefixed=True) == (path.stat().st_ino, len(text))
    pieces = text.removesuffix(b"\n").split(b"\n") if text else []
    last = b"\n".join(pieces[max(len(pieces) - wanted, 0) :])
    assert shown == (last + text[len(text.removesuffix(b"\n")) :] if wanted and pieces else b"")
    assert bytes(out).replace(part.prefix, b"") in (text, text + b"\n")


@pytest.mark.real
@pytest.mark.key
def test_follow_shows_what_comes_and_ends_with_the_job(home: Path, two_attempts: JobPlace) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "logs", "train", "--follow", "--stdout", "--tail", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        killer = threading.Timer(60, follower.kill)
        killer.start()
        try:
            assert follower.stdout.readline() == "[worker-0 stdout] a2 r0 two\n"
            assert follower.stdout.readline() == "[worker-1 stdout] a2 r1 two\n"
            _log(two_attempts, 2, 1, "stdout", "more\nunfin")
            assert follower.stdout.readline() == "[worker-1 stdout] more\n"
            _log(two_attempts, 2, 1, "stderr", "not asked for\n")
            _log(two_attempts, 3, 0, "stdout", "next attempt\n")
            assert follower.stdout.readline() == "[worker-0 stdout] next attempt\n"
            _log(two_attempts, 2, 1, "stdout", "ished\nno end")
            assert follower.stdout.readline() == "[worker-1 stdout] unfinished\n"
            two_attempts.lock.release()
            assert follower.stdout.read() == "[worker-1 stdout] no end\n"
            assert follower.wait(timeout=90) == 0
        finally:
            killer.cancel()


class Door:
    """The supervisor's real door, served by a thread."""

    def __init__(self, place: JobPlace, reply: Reply | None) -> None:
        self.got: list[Line] = []
        self._reply = reply
        self._reactor = Reactor(time.monotonic)
        self._open = True
        self._wake, self._waker = os.pipe()
        self.control = Control(place.directory, self._reactor, self._take)
        if reply is None:
            for fd in tuple(self._reactor.watching):
                self._reactor.forget(fd)
        self._reactor.watch(self._wake, self._leave)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _take(self, line: Line) -> Reply:
        self.got.append(line)
        assert self._reply is not None
        return self._reply

    def _serve(self) -> None:
        while self._open:
            self._reactor.wait()

    def _leave(self, fd: int, now: float) -> None:
        self._open = False

    def close(self) -> None:
        os.write(self._waker, b"x")
        self._thread.join(timeout=60)
        if self._reply is not None:
            self.control.close()
        else:
            self.control._listener.close()
        self._reactor.close()
        os.close(self._wake)
        os.close(self._waker)


OpenDoor = Callable[[JobPlace, Reply | None], Door]


@pytest.fixture
def open_doors() -> Iterator[OpenDoor]:
    """Opens a supervisor's door that is closed at the end of the test, however that ends."""
    with ExitStack() as opened:

        def open_(place: JobPlace, reply: Reply | None) -> Door:
            made = Door(place, reply)
            opened.callback(made.close)
            return made

        yield open_


def test_stop_hands_reason_solution_and_asker_over(cli: Cli, two_attempts: JobPlace, open_doors: OpenDoor) -> None:
    served = open_doors(two_attempts, Reply(True, "stopping attempt 2"))
    status, out, err = cli("stop", "train", "--reason", "node needed", "--solution", "start again tomorrow")
    number = two_attempts.job_id
    told = f"job {number} (train): stopping attempt 2\nwatch it end: holdfast logs {number} --follow\n"
    assert (status, out, err) == (0, told, "")
    (line,) = served.got
    assert isinstance(line, StopLine)
    assert (line.reason, line.solution) == ("node needed", "start again tomorrow")
    assert line.who.endswith(f", pid {os.getpid()}") and "@" in line.who


def test_a_refusal_is_said(cli: Cli, two_attempts: JobPlace, open_doors: OpenDoor) -> None:
    open_doors(two_attempts, Reply(False, "it is being stopped already"))
    status, out, err = cli("stop", "train", "--reason", "r")
    assert (status, out) == (1, "") and "refused to stop: it is being stopped already" in err


def test_a_deep_state_directory_is_no_obstacle(cli: Cli, tmp_path: Path, open_doors: OpenDoor) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    place = claim(deep, name="train", now=1000.0)
    open_doors(place, Reply(True, "ok"))
    status, out, _ = cli("stop", "train", "--reason", "r", HOLDFAST_HOME=str(deep))
    assert (status, out.splitlines()[0]) == (0, f"job {place.job_id} (train): ok")
    place.lock.release()


def test_a_supervisor_without_a_door_is_named_with_what_to_type(cli: Cli, two_attempts: JobPlace) -> None:
    status, out, err = cli("stop", "train", "--reason", "r")
    assert (status, out) == (1, "")
    assert f"the supervisor of job {two_attempts.job_id} (pid {os.getpid()} on " in err
    assert "cannot be reached (no such file or directory)" in err and f"kill -TERM {os.getpid()}" in err


def test_a_supervisor_that_does_not_answer(
    cli: Cli, two_attempts: JobPlace, monkeypatch: pytest.MonkeyPatch, open_doors: OpenDoor
) -> None:
    monkeypatch.setattr("holdfast.cli.stop.ANSWER_S", 0.05)
    open_doors(two_attempts, None)
    status, _, err = cli("stop", "train", "--reason", "r")
    assert status == 1 and "did not answer within 0.05 s" in err


def test_a_job_that_is_over_needs_no_stop(cli: Cli, two_attempts: JobPlace) -> None:
    two_attempts.lock.release()
    status, out, err = cli("stop", "train", "--reason", "r")
    assert status == 0
    assert (
        f"job {two_attempts.job_id} is over already: it failed at " in out and "KilledBySignal (exit code 137)" in out
    )
    assert "holdfast itself" in err


@pytest.mark.parametrize("words", [("--reason", " "), ("--reason",)])
def test_a_reason_that_is_typed_has_words(cli: Cli, two_attempts: JobPlace, words: tuple[str, ...]) -> None:
    status, out, err = cli("stop", "train", *words)
    assert (status, out) == (2, "") and "--reason" in err


def test_a_job_of_another_machine_can_only_be_asked_there(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("os.uname", lambda: SimpleNamespace(nodename="node7"))
        place = claim(home, name="train", now=1000.0)
    monkeypatch.setattr("socket.gethostname", lambda: "login1")
    status, _, err = cli("stop", "train", "--reason", "it's late")
    assert status == 2
    assert f"job {place.job_id} runs on node7, and this is login1" in err
    assert f"try: ssh node7 holdfast stop {place.job_id}" in err
    place.lock.release()


def test_one_line_each_way_is_the_protocol(two_attempts: JobPlace, open_doors: OpenDoor) -> None:
    from holdfast.cli.stop import ask

    open_doors(two_attempts, Reply(True, "ok"))
    assert ask(two_attempts.directory, json.dumps({"type": "stop", "reason": "r"}).encode() + b"\n") == {
        "ok": True,
        "message": "ok",
    }
    assert ask(two_attempts.directory, b"rubbish\n")["ok"] is False
