"""The one way in to kill, and nothing left behind: stop, signals, limits, kill -9 of holdfast itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from conftest import Holdfast, wait_for
from processes import is_gone

pytestmark = [pytest.mark.real, pytest.mark.key]

STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
# A grandchild in a session of its own, with an empty environment, that ignores SIGTERM.
if os.environ["RANK"] == "0":
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={})
    pathlib.Path("grandchild").write_text(str(child.pid))
time.sleep(600)
"""


def test_stop_says_why(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", "--grace", "1", "--name", "night", holdfast.script(STUBBORN))
    grandchild = int(wait_for(holdfast.dir / "grandchild"))
    stop = holdfast("stop", "night", "--reason", "the cluster goes down at six")
    assert stop.status == 0, stop.err
    ran = holdfast.finish(process)
    report = ran.report
    assert (ran.status, report["code"], report["phrase"]) == (250, 250, "StoppedByOperator")
    assert (report["outcome"], report["blame"]) == ("stopped", "operator")
    assert "the cluster goes down at six (asked by " in report["reason"] and ", pid " in report["reason"]
    assert stop.out == (
        f"job {report['job']['id']} (night): its workers get SIGTERM now, and SIGKILL if they still run 1 s later\n"
        f"watch it end: holdfast logs {report['job']['id']} --follow\n"
    )
    assert report["attempts"][0]["decision"]["kind"] == "stop"
    assert is_gone(grandchild, 2)


def test_stop_alone_means_the_only_job_that_runs(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", "--grace", "1", "--name", "night", holdfast.script(STUBBORN))
    wait_for(holdfast.dir / "grandchild")
    stop = holdfast("stop")
    assert stop.status == 0 and " (night): its workers get SIGTERM now" in stop.out
    ran = holdfast.finish(process)
    assert ran.report["phrase"] == "StoppedByOperator" and "no reason given (asked by " in ran.report["reason"]
    after = holdfast("stop")
    assert after.status == 2 and "no job runs here\n  try: holdfast jobs" in after.err


def test_stop_alone_refuses_to_choose_between_two(holdfast: Holdfast) -> None:
    waits = holdfast.script("import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text('up'); time.sleep(600)")
    both = [holdfast.start("run", "--no-checks", "--name", name, waits, name) for name in ("one", "two")]
    for name in ("one", "two"):
        wait_for(holdfast.dir / name)
    stop = holdfast("stop")
    assert stop.status == 2 and "2 jobs have not ended: " in stop.err
    assert "(one)" in stop.err and "(two)" in stop.err
    for name, process in zip(("one", "two"), both, strict=True):
        assert holdfast("stop", name).status == 0
        assert holdfast.finish(process).status == 250


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_requests(holdfast: Holdfast, number: signal.Signals) -> None:
    process = holdfast.start("run", "--no-checks", "--grace", "0.5", holdfast.script(STUBBORN))
    grandchild = int(wait_for(holdfast.dir / "grandchild"))
    process.send_signal(number)
    ran = holdfast.finish(process)
    assert ran.status == 250
    assert number.name in ran.report["reason"]
    assert is_gone(grandchild, 2)


def test_second_ctrl_c_does_not_wait_for_the_grace_time(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", "--grace", "600", holdfast.script(STUBBORN))
    wait_for(holdfast.dir / "grandchild")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "stopping" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert holdfast.finish(process, timeout_s=20).status == 250


def test_time_limit(holdfast: Holdfast) -> None:
    ran = holdfast.run("--time-limit", "0.5", "--grace", "0.2", holdfast.script(STUBBORN))
    assert ran.report["phrase"] == "TimeLimitReached"
    assert "0.5 s" in ran.report["reason"]
    assert ran.status == ran.report["code"]


@pytest.mark.parametrize("victim", ["guard", "supervisor"])
def test_kill_nine_of_holdfast_leaves_nothing(holdfast: Holdfast, victim: str) -> None:
    process = holdfast.start("run", "--no-checks", "--name", "lost", "--nproc-per-node", "2", holdfast.script(STUBBORN))
    grandchild = int(wait_for(holdfast.dir / "grandchild"))
    [supervisor] = psutil.Process(process.pid).children()
    below = [child.pid for child in supervisor.children(recursive=True)]
    assert grandchild in below
    assert len(below) == 3
    os.kill(process.pid if victim == "guard" else supervisor.pid, signal.SIGKILL)
    for pid in below:
        assert is_gone(pid, 2), f"{pid} outlived holdfast by 2 s"
    holdfast.finish(process)
    jobs = holdfast("jobs", "--json")
    assert jobs.status == 0
    shown = holdfast("show", "lost")
    assert "SIGKILL" in shown.out + shown.err
    report = holdfast("show", "lost", "--json")
    assert json.loads(report.out)["outcome"] == "failed"


def test_background_child_that_keeps_stdout_open_does_not_keep_the_job(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import subprocess, sys
        subprocess.Popen(["sleep", "300"])
        print("done", flush=True)
        """
    )
    ran = holdfast.run(script, timeout_s=20)
    assert ran.status == 0
    assert ran.out == "[worker-0] done\n"


def test_grandchildren_that_fork_while_they_die(holdfast: Holdfast) -> None:
    """A tree that spawns on SIGTERM is still ended to the last process."""
    script = holdfast.script(
        """
        import os, pathlib, signal, subprocess, sys, time
        def spawn(*_):
            for _ in range(5):
                subprocess.Popen(["sleep", "300"], start_new_session=True)
        signal.signal(signal.SIGTERM, spawn)
        pathlib.Path("up").write_text("1")
        while True:
            time.sleep(1)
        """
    )
    process = holdfast.start("run", "--no-checks", "--grace", "0.5", script)
    wait_for(holdfast.dir / "up")
    process.send_signal(signal.SIGTERM)
    assert holdfast.finish(process).status == 250
    assert not holdfast.survivors()


def test_stop_while_it_backs_off(holdfast: Holdfast) -> None:
    """Nothing lives then; the stop is the job's end, and the attempt keeps its own cause."""
    script = holdfast.script(
        """
        import os, sys
        sys.exit("OSError: [Errno 98] Address already in use")
        """
    )
    job = holdfast.dir / "job.yaml"
    job.write_text(
        f"name: patient\nroles: {{worker: {{count: 1, command: [{sys.executable}, {script}]}}}}\n"
        "restarts: {backoff_s: 500, backoff_cap_s: 500}\n"
    )
    process = holdfast.start("run", "--no-checks", "--job", job)
    assert process.stderr is not None
    while "decision:" not in (line := process.stderr.readline()):
        assert line, "it ended before it backed off"
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process, timeout_s=20)
    report = ran.report
    assert (ran.status, report["phrase"]) == (250, "StoppedByOperator")
    assert report["attempts"][-1]["report"]["phrase"] != "StoppedByOperator"


def test_usr1_reaches_the_workers(holdfast: Holdfast) -> None:
    """Slurm announces the end of a job so (--signal=USR1@60)."""
    script = holdfast.script(
        """
        import pathlib, signal, sys, time
        def save(*_):
            print("saved", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGUSR1, save)
        pathlib.Path("up").write_text("1")
        time.sleep(60)
        """
    )
    process = holdfast.start("run", "--no-checks", script)
    wait_for(holdfast.dir / "up")
    process.send_signal(signal.SIGUSR1)
    ran = holdfast.finish(process)
    assert (ran.status, ran.out) == (0, "[worker-0] saved\n")


def test_terminal_that_nobody_reads_does_not_stop_training(holdfast: Holdfast) -> None:
    """holdfast's stdout is a full pipe; the job ends, and its log is whole."""
    script = holdfast.script("for i in range(200_000): print('line', i)")
    process = holdfast.start("run", "--no-checks", script)
    assert process.stderr is not None
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not list(holdfast.home.glob("jobs/*/report.json")):
        time.sleep(0.1)
    ran = holdfast.finish(process)
    log = (ran.job_dir / "attempt-1" / "worker-0" / "stdout.log").read_text().splitlines()
    assert (len(log), log[-1]) == (200_000, "line 199999")


def test_nohup_is_honoured(holdfast: Holdfast) -> None:
    script = holdfast.script("import pathlib, time; pathlib.Path('up').write_text('1'); time.sleep(1.5); print('end')")
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "holdfast", "run", "--no-checks", script],
        env=holdfast.env,
        cwd=holdfast.dir,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(holdfast.dir / "up")
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=90)
    assert (process.returncode, out) == (0, "[worker-0] end\n")
