"""SIGTERM and workers that wait for a notice: a platform's own signal does not end them before it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Holdfast, wait_for

pytestmark = pytest.mark.real

WORKER_IMPORTS = """
import os, pathlib, signal, sys, threading, time
import holdfast
"""


def run_worker(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    """A worker alone, whose file for the notice lies in `tmp_path`."""
    env = {**os.environ, "HOLDFAST_DRAIN": str(tmp_path / "drain")}
    words = [sys.executable, "-c", WORKER_IMPORTS + program]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_sigterm_does_not_end_a_worker_that_waits_for_its_notice(tmp_path: Path) -> None:
    done = run_worker(tmp_path, "holdfast.on_drain(print); os.kill(os.getpid(), signal.SIGTERM); print('lives')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives\n", "")
    assert (tmp_path / "drain.shielded").exists()


def test_the_word_that_the_time_is_over_ends_it_as_sigterm_does(tmp_path: Path) -> None:
    """Also where the main thread is in a call that runs no handler."""
    program = """
holdfast.on_drain(print)
drain = os.environ["HOLDFAST_DRAIN"]
pathlib.Path(drain + ".new").touch()
os.rename(drain + ".new", drain + ".leave")
signal.pthread_sigmask(signal.SIG_BLOCK, [])
threading.Event().wait()
"""
    assert run_worker(tmp_path, program).returncode == -signal.SIGTERM


def test_a_signal_that_no_notice_follows_ends_it_after_a_while(tmp_path: Path) -> None:
    program = """
import holdfast.worker
holdfast.worker._NOTICE_WAIT_S = 0.1
holdfast.on_drain(print)
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait()
"""
    assert run_worker(tmp_path, program).returncode == -signal.SIGTERM


def test_a_notice_keeps_it_for_as_long_as_it_needs(tmp_path: Path) -> None:
    program = """
import holdfast.worker
holdfast.worker._NOTICE_WAIT_S = 0.1
told = threading.Event()
holdfast.on_drain(lambda notice: (time.sleep(0.5), print("saved", notice["reason"], flush=True), told.set()))
os.kill(os.getpid(), signal.SIGTERM)
drain = os.environ["HOLDFAST_DRAIN"]
pathlib.Path(drain + ".new").write_text('{"reason": "preempted"}')
os.rename(drain + ".new", drain)
told.wait()
"""
    done = run_worker(tmp_path, program)
    assert (done.returncode, done.stdout) == (0, "saved preempted\n")


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_handler_of_the_programs_own_stays(tmp_path: Path, where: str) -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: (print('own', flush=True), os._exit(3)))"
    first, second = (own, "holdfast.on_drain(print)") if where == "before" else ("holdfast.on_drain(print)", own)
    done = run_worker(tmp_path, f"{first}\n{second}\nos.kill(os.getpid(), signal.SIGTERM)\nthreading.Event().wait()")
    assert (done.returncode, done.stdout) == (3, "own\n")


def test_a_signal_that_the_program_ignores_stays_ignored(tmp_path: Path) -> None:
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
holdfast.on_drain(print)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)
"""
    assert run_worker(tmp_path, program).stdout == "True\n"


def test_another_thread_installs_nothing(tmp_path: Path) -> None:
    program = """
thread = threading.Thread(target=holdfast.on_drain, args=(print,))
thread.start(); thread.join()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    assert run_worker(tmp_path, program).stdout == "True\n"


def test_processes_that_the_worker_forks_die_of_sigterm(tmp_path: Path) -> None:
    """Pools and loaders end theirs with it."""
    program = """
holdfast.on_drain(print)
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
child.start(); child.terminate(); child.join()
print(child.exitcode)
"""
    assert run_worker(tmp_path, program).stdout == "-15\n"


def test_a_stop_ends_such_a_worker_at_once_and_by_sigterm(holdfast: Holdfast) -> None:
    script = holdfast.script(
        WORKER_IMPORTS + "holdfast.on_drain(print)\npathlib.Path('up').write_text('1')\nwhile True: time.sleep(0.05)\n"
    )
    process = holdfast.start("run", "--no-checks", "--grace", "60", script)
    wait_for(holdfast.dir / "up")
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process)
    assert ran.report["phrase"] == "StoppedByOperator"
    assert ran.report["original"]["signal"] == "SIGTERM"


def test_no_worker_starts_with_sigterm_ignored_or_blocked(holdfast: Holdfast) -> None:
    look = """
words = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Sig"))
bit = 1 << (signal.SIGTERM - 1)
print("seen", [name for name in ("SigBlk", "SigIgn", "SigCgt") if int(words[name], 16) & bit], flush=True)
"""
    for options in ([], ["--warm"]):
        ran = holdfast("run", "--no-checks", *options, holdfast.script(WORKER_IMPORTS + look))
        assert ran.status == 0
        assert "seen []" in ran.out


def test_a_hung_worker_that_listens_still_writes_its_stacks(holdfast: Holdfast) -> None:
    script = holdfast.script(
        WORKER_IMPORTS + "holdfast.on_drain(print)\ndef stands_here(): threading.Event().wait()\nstands_here()\n"
    )
    ran = holdfast("run", "--no-checks", "--max-restarts", "0", "--hang-timeout", "2", "--grace", "30", script)
    assert ran.report["phrase"] == "HungWorker"
    (log,) = ran.job_dir.glob("attempt-1/worker-0/stderr.log")
    assert "stands_here" in log.read_text() or "stands_here" in str(ran.report)
