"""Hangs of real processes, looked at and judged as the supervisor does it, and workers that only seem to hang."""

from __future__ import annotations

import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import children
from holdfast.act.termination import request_stacks
from holdfast.decide.queries.hang_detection import HangWatch
from holdfast.explain.hangs.hang_judgement import Hung, Judgement, judge
from holdfast.explain.hangs.wait_rules import peer_wait
from holdfast.model.evidence import RankSnapshot
from holdfast.model.gang_protocol import Closeness
from holdfast.observe import procfs
from holdfast.observe.progress_reader import read_progress
from holdfast.observe.python_stacks import find_py_spy, parse_faulthandler, parse_py_spy, with_last_words
from holdfast.observe.rank_look import HangProbe, look_lightly

pytestmark = pytest.mark.real

HANG_S = 2.0
PY_SPY = find_py_spy()
needs_stacks = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")

SLEEPS = """
import time
def load_batch():
    time.sleep(600)
load_batch()
"""
WAITS_FOR_EVER = """
import threading
def all_reduce():
    threading.Event().wait()
all_reduce()
"""
SPINS = """
def all_reduce():
    while True:
        pass
def step():
    all_reduce()
step()
"""
DEADLOCKED = """
import threading
first, second = threading.Lock(), threading.Lock()
meet = threading.Barrier(2)
def take(one, other):
    with one:
        meet.wait()
        with other:
            pass
other = threading.Thread(target=take, args=(second, first))
other.start()
take(first, second)
"""
#: Twelve equal parts: seven looks in a row do not find the same one.
COMPUTES = (
    "".join(f"def part{part}(x):\n    return sum(i * x for i in range(20000))\n" for part in range(12))
    + "while True:\n"
    + "".join(f"    part{part}(3)\n" for part in range(12))
)
COMPUTES_AT_ONE_LINE = """
while True: sum(i * i for i in range(100000))
"""
LOOPS = """
def converged(value):
    return value < 0
def sample():
    value = 1
    while not converged(value):
        value = value * 7 % 101
sample()
"""
LOADER_WORKS = """
import os
end, to = os.pipe()
if os.fork() == 0:
    while True: os.write(to, b"%64d" % sum(i * i for i in range(100000)))
while os.read(end, 64): pass
"""


class RealGang:
    """Real ranks, and a small loop that serves a watch and its probes as the supervisor's does."""

    def __init__(self, *scripts: str) -> None:
        self.started_at = time.time()
        self.workers = [
            subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, start_new_session=True)
            for script in scripts
        ]
        self.pids = {rank: worker.pid for rank, worker in enumerate(self.workers)}
        self.probes = 0

    def watch(self, for_s: float) -> Judgement | None:
        """The last judgement, a hang at once."""
        watch = HangWatch(1, HANG_S, self.pids, self.started_at)
        last: Judgement | None = None
        while (wake := watch.next_wake()) is not None and wake < self.started_at + for_s:
            time.sleep(max(0.0, wake - time.time()))
            closeness = watch.wants(time.time())
            if closeness is not None:
                look = self.look() if closeness is Closeness.STACKS else look_lightly(self.pids, time.time())
                last = watch.looked(look, time.time(), closeness)
                if isinstance(last, Hung):
                    break
        return last

    def look(
        self, py_spy: str | None = PY_SPY, limit_s: float = 20.0, *, native_limit_s: float | None = None
    ) -> tuple[RankSnapshot, ...]:
        """`native_limit_s`: with the frames of machine code, within so many seconds."""
        self.probes += 1
        probe = HangProbe(
            look_lightly(self.pids, time.time()),
            time.time(),
            limit_s=limit_s,
            py_spy=py_spy,
            native=native_limit_s is not None,
            native_limit_s=native_limit_s or 0.0,
        )
        while (result := probe.result()) is None:
            with selectors.DefaultSelector() as selector:
                for fd in probe.fds():
                    selector.register(fd, selectors.EVENT_READ)
                wake = probe.next_wake()
                assert wake is not None
                ready = [key.fd for key, _ in selector.select(max(0.0, wake - time.time()))]
            for fd in ready:
                probe.ready(fd, time.time())
            probe.tick(time.time())
        assert probe.fds() == ()
        assert children.helpers() == frozenset()
        assert probe.next_wake() is None
        return result

    def settled(self) -> None:
        """Until every rank has used its CPU for starting up, and stands or burns."""
        for worker in self.workers:
            self.until(lambda pid=worker.pid: catches(pid, signal.SIGINT))  # type: ignore[misc]  # mypy cannot type a lambda's default

    def until(self, true: Callable[[], bool]) -> None:
        for _ in range(1800):
            if true():
                return
            time.sleep(0.05)
        raise AssertionError("it did not come true within 90 s")

    def close(self) -> None:
        for worker in self.workers:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate(timeout=90)


Start = Callable[..., RealGang]


@pytest.fixture
def start_gang() -> Iterator[Start]:
    gangs: list[RealGang] = []

    def begin(*scripts: str) -> RealGang:
        gangs.append(RealGang(*scripts))
        gangs[-1].settled()
        return gangs[-1]

    yield begin
    for gang in gangs:
        gang.close()


def culprits_and_why(judgement: Judgement | None) -> tuple[tuple[int, ...], str]:
    assert isinstance(judgement, Hung), judgement
    return judgement.evidence.culprits, judgement.evidence.why


@needs_stacks
def test_an_endless_sleep_while_the_others_wait(start_gang: Start) -> None:
    culprits, why = culprits_and_why(start_gang(WAITS_FOR_EVER, SLEEPS, WAITS_FOR_EVER).watch(20))

    assert culprits == (1,)
    assert "rank 1 is blocked in load_batch (<string>:4)" in why
    assert "ranks 0 and 2 wait in all_reduce" in why


@needs_stacks
def test_a_sleep_while_the_others_spin_in_a_collective(start_gang: Start) -> None:
    culprits, why = culprits_and_why(start_gang(SPINS, SLEEPS).watch(30))

    assert culprits == (1,)
    assert "waits busily in all_reduce" in why


@pytest.mark.key
@needs_stacks
def test_a_deadlock(start_gang: Start) -> None:
    culprits, why = culprits_and_why(start_gang(WAITS_FOR_EVER, DEADLOCKED).watch(20))

    assert culprits == (1,)
    assert "take (<string>:8)" in why


def test_a_stopped_worker(start_gang: Start) -> None:
    gang = start_gang(WAITS_FOR_EVER, WAITS_FOR_EVER)
    os.kill(gang.pids[1], signal.SIGSTOP)
    culprits, why = culprits_and_why(gang.watch(20))

    assert culprits == (1,)
    assert why.startswith("rank 1 is stopped (state T) while rank 0")


def test_a_stopped_worker_keeps_its_stop_through_a_look(start_gang: Start) -> None:
    gang = start_gang(SLEEPS)
    os.kill(gang.pids[0], signal.SIGSTOP)
    gang.until(lambda: procfs.state(gang.pids[0]) == "T")
    (shot,) = gang.look()

    assert procfs.state(gang.pids[0]) == "T"
    assert shot.threads[0].state == "T"
    if PY_SPY is not None:
        assert shot.threads[0].frames[0] == "load_batch (<string>:4)"


@pytest.mark.key
@needs_stacks
@pytest.mark.parametrize("script", [COMPUTES_AT_ONE_LINE, LOOPS], ids=["one line", "a few lines"])
def test_a_rank_that_spins_while_the_other_waits_for_it_is_found(start_gang: Start, script: str) -> None:
    gang = start_gang(WAITS_FOR_EVER, script)
    judgement = gang.watch(20 * HANG_S)
    assert isinstance(judgement, Hung)
    assert judgement.evidence.culprits == (1,)
    assert "burns CPU" in judgement.evidence.why


@pytest.mark.key
@needs_stacks
@pytest.mark.parametrize("script", [COMPUTES, LOADER_WORKS], ids=["moving", "child"])
def test_silent_work_is_not_a_hang(start_gang: Start, script: str) -> None:
    gang = start_gang(WAITS_FOR_EVER, script)
    judgement = gang.watch(4 * HANG_S)

    assert gang.probes >= 3
    assert not isinstance(judgement, Hung)


@needs_stacks
def test_a_script_behind_a_shell_has_its_stack(start_gang: Start) -> None:
    gang = start_gang(
        f"import subprocess, sys; subprocess.run(['sh', '-c', '{sys.executable} -c \"$0\"; :', {SLEEPS!r}])"
    )
    shell = gang.pids[0]
    gang.until(lambda: len(procfs.tree(shell)) == 3)
    pid = procfs.children(shell)[0]
    gang.pids = {0: pid}

    def stands() -> bool:
        (shot,) = gang.look()
        return any(thread.frames[:1] == ("load_batch (<string>:4)",) for thread in shot.threads)

    gang.until(stands)
    (shot,) = gang.look()
    assert isinstance(judge(1, HANG_S, gang.started_at, [(shot,)]), Judgement)


TORCH_HANGS = """
import os, time, torch, torch.distributed as dist
rank = {rank}
dist.init_process_group("gloo", init_method="file://{store}", rank=rank, world_size=3)
x = torch.ones(1)
dist.all_reduce(x)
open("{store}.up" + str(rank), "w").close()
def load_batch():
    time.sleep(600)
if rank == 2:
    load_batch()
dist.all_reduce(x)
"""


@needs_stacks
@pytest.mark.torch
def test_a_rank_that_misses_a_gloo_collective(start_gang: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    gang = start_gang(*(TORCH_HANGS.format(rank=rank, store=store) for rank in range(3)))
    gang.until(lambda: len(list(tmp_path.glob("store.up*"))) == 3)
    gang.started_at = time.time()
    culprits, why = culprits_and_why(gang.watch(20))

    assert culprits == (2,)
    assert "rank 2 is blocked in load_batch" in why
    assert "ranks 0 and 1 wait in all_reduce (called at <string>" in why


# ---------------------------------------------------------------------------------------------- without py-spy


def fake_py_spy(tmp_path: Path, text: str) -> str:
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_refused_look_says_what_it_takes(start_gang: Start, tmp_path: Path) -> None:
    refused = fake_py_spy(tmp_path, "echo 'Error: Permission denied (os error 13)' >&2; exit 1")
    (shot,) = start_gang(SLEEPS).look(refused)

    assert shot.threads[0].frames == ()
    assert "ptrace_scope" in shot.stack_source


def test_a_look_that_takes_too_long_is_given_up(start_gang: Start, tmp_path: Path) -> None:
    slow = fake_py_spy(tmp_path, "exec sleep 60")
    (one, two) = start_gang(SLEEPS, SLEEPS).look(slow, limit_s=0.3)

    assert one.stack_source == two.stack_source == "py-spy did not answer within 0.3 s"


@pytest.mark.parametrize("fails", ["echo Error: not supported; exit 1", "exec sleep 60"], ids=["refused", "too slow"])
def test_where_machine_code_cannot_be_read_pythons_frames_come_without_it(
    start_gang: Start, tmp_path: Path, fails: str
) -> None:
    frame = '{"name": "f", "filename": "a.py", "line": 3}'
    said = f'[{{"pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "frames": [{frame}]}}]'
    py_spy = fake_py_spy(tmp_path, f"case \"$*\" in *native*) {fails};; *) echo '{said}';; esac")
    looked = start_gang(SLEEPS, SLEEPS, SLEEPS, SLEEPS, SLEEPS).look(py_spy, native_limit_s=0.5)

    assert [shot.stack_source for shot in looked] == ["py-spy"] * 5


@needs_stacks
def test_frames_of_machine_code_tell_what_a_wait_is(start_gang: Start) -> None:
    gang = start_gang("import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()")
    gang.settled()
    (shot,) = gang.look(native_limit_s=20.0)
    frames = shot.threads[0].frames
    assert any(frame.endswith(("(libc.so.6)", "(python)")) or "(libpython" in frame for frame in frames)
    assert peer_wait(frames) is not None


def test_a_stopped_process_is_not_halted_for_machine_code(start_gang: Start, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    gang = start_gang(SLEEPS)
    gang.settled()
    os.kill(gang.pids[0], signal.SIGSTOP)
    gang.until(lambda: procfs.state(gang.pids[0]) == "T")
    gang.look(fake_py_spy(tmp_path, f'echo "$*" >> {asked}; echo "[]"'), native_limit_s=5.0)
    assert "--native" not in asked.read_text()
    assert "--nonblocking" in asked.read_text()


def test_a_torn_reading_is_repeated_with_a_pause(start_gang: Start, tmp_path: Path) -> None:
    frame = '{"name": "f", "filename": "a.py", "line": 3}'
    said = f'[{{"pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "frames": [{frame}]}}]'
    torn = fake_py_spy(tmp_path, f"case \"$*\" in *nonblocking*) echo Error: torn; exit 1;; *) echo '{said}';; esac")
    (shot,) = start_gang(SLEEPS).look(torn)

    assert shot.stack_source == "py-spy"
    assert [thread.frames for thread in shot.threads if thread.tid == 7] == [("f (a.py:3)",)]


def test_what_is_not_python_has_no_stack() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        probe = HangProbe(look_lightly({0: sleeper.pid}, time.time()), time.time(), py_spy="/bin/false")
        result = probe.result()
    finally:
        sleeper.kill()
        sleeper.wait()
    assert result is not None
    assert result[0].stack_source == "not a Python process"


def test_who_is_gone_is_left_out() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert HangProbe(look_lightly({0: gone.pid}, time.time()), time.time()).result() == ()


def test_breaking_a_look_off(start_gang: Start, tmp_path: Path) -> None:
    gang = start_gang(SLEEPS)
    probe = HangProbe(look_lightly(gang.pids, time.time()), time.time(), py_spy=fake_py_spy(tmp_path, "exec sleep 60"))
    started = children.helpers()
    probe.kill()
    result = probe.result()

    assert len(started) == 1
    assert result is not None
    assert result[0].stack_source == "the look was broken off"
    gang.until(lambda: all(procfs.state(pid) in ("", "Z") for pid in started))
    for pid in started:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # reaped already when it was broken off


def test_last_words(start_gang: Start) -> None:
    silent = start_gang(SLEEPS)
    assert not request_stacks(silent.pids[0]), "without faulthandler SIGABRT is just another death"
    saves = subprocess.Popen(
        [
            *(sys.executable, "-X", "faulthandler", "-c"),
            "import signal, time; signal.signal(signal.SIGTERM, print); time.sleep(60)",
        ]
    )
    try:
        silent.until(lambda: catches(saves.pid, signal.SIGTERM))
        assert not request_stacks(saves.pid), "it has something to save"
        assert request_stacks(saves.pid, shielded=True), "that handler is on_drain's, which saves nothing for it"
        assert saves.wait(20) == -signal.SIGABRT
    finally:
        saves.kill()
        saves.wait()

    armed = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", "import os, threading; os.write(2, b'up\\n')\n" + SLEEPS],
        stderr=subprocess.PIPE,
    )
    try:
        assert armed.stderr is not None
        assert armed.stderr.readline() == b"up\n"
        silent.until(lambda: procfs.state(armed.pid) == "S")
        look = look_lightly({3: armed.pid}, time.time())
        os.kill(armed.pid, signal.SIGSTOP)
        silent.until(lambda: procfs.state(armed.pid) == "T")
        assert not request_stacks(armed.pid), "a stopped process would take it only when it goes on"
        os.kill(armed.pid, signal.SIGCONT)
        silent.until(lambda: procfs.state(armed.pid) != "T")
        assert request_stacks(armed.pid)
        assert resource.prlimit(armed.pid, resource.RLIMIT_CORE)[0] in (0, 1)
        fd = os.pidfd_open(armed.pid)
        assert select.select([fd], [], [], 20)[0]
        os.close(fd)
    finally:
        armed.kill()
        stderr = armed.communicate(timeout=90)[1].decode()
    assert not request_stacks(armed.pid), "it is gone"
    (shot,) = with_last_words(look, {3: stderr})

    assert armed.returncode == -signal.SIGABRT
    assert shot.stack_source == "faulthandler"
    assert shot.threads[0].frames[0] == "load_batch (<string>:5)"


# ---------------------------------------------------------------------------------------------- progress


def test_progress_of_threads_and_forks(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    assert read_progress(path) is None
    code = """
import os, threading, holdfast
holdfast.progress(1)
threads = [threading.Thread(target=lambda: [holdfast.progress(n) for n in range(1000)]) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
if os.fork() == 0:
    holdfast.progress(5000)
    os._exit(0)
os.wait()
os.closerange(3, 50)
holdfast.progress(6000)
holdfast.progress(7000)
holdfast.progress(None)
"""
    began = time.time()
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HOLDFAST_PROGRESS": str(path)}, check=True, timeout=60
    )
    read = read_progress(path)

    assert read is not None
    assert read[0] == 7000
    assert began - 1 <= read[1] <= time.time() + 1
    assert path.stat().st_size == 24


@pytest.mark.parametrize("value", ["", "/none/there", "/"])
def test_progress_never_raises(value: str) -> None:
    code = "import holdfast; holdfast.progress(3); holdfast.progress('x'); holdfast.progress(2**80)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOLDFAST_PROGRESS": value},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == b""


def test_half_a_word_is_no_word(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"1234567")
    assert read_progress(tmp_path / "p") is None


# ---------------------------------------------------------------------------------------------- texts


def test_faulthandlers_text() -> None:
    text = """Traceback of something
  File "noise.py", line 1 in noise
Fatal Python error: Aborted

Thread 0x00007f0000000001 (most recent call first):
  File "/a/t.py", line 7 in worker
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f0000000002 (most recent call first):
  File "/a/t.py", line 3 in wait
  File "/a/t.py", line 9 in <module>

Extension modules: numpy._core (total: 1)
  File "after.py", line 1 in after
"""
    assert parse_faulthandler(text) == (
        ("wait (/a/t.py:3)", "<module> (/a/t.py:9)"),
        ("worker (/a/t.py:7)", "run (/usr/lib/python3.11/threading.py:982)"),
    )
    assert parse_faulthandler("nothing") == ()
    assert parse_faulthandler(text.replace("Current t", "T"))[0][0] == "wait (/a/t.py:3)"


@pytest.mark.parametrize("text", [b"", b"Error: x", b"{}", b'[{"pid": "x"}]', b"[1]"])
def test_what_is_no_dump(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_py_spy(text)


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)
