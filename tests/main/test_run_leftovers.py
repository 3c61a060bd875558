"""What a rank leaves running when it ends gets time, its output is kept, and what is killed is named."""

from __future__ import annotations

import shutil
import signal
import sys

import pytest

from conftest import Holdfast, wait_for

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here"),
]

BASH = ("--no-python", "bash", "-c")
#: Leaves a process that writes `whole` after a second, and ends.
UPLOADS = {
    "own session": "setsid sh -c 'sleep 1; echo whole >uploaded' & echo step 1",
    "background of a shell": "{ sleep 1; echo whole >uploaded; } & echo step 1",
    "daemon": "( setsid sh -c 'sleep 1; echo whole >uploaded' </dev/null >/dev/null 2>&1 & ) ; echo step 1",
    "prints all the time": "setsid sh -c 'for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; echo whole >uploaded' & :",
    "without its environment": "env -i setsid sh -c 'sleep 1; echo whole >uploaded' & echo step 1",
}


@pytest.mark.key
@pytest.mark.parametrize("left", UPLOADS.values(), ids=UPLOADS)
def test_an_upload_that_a_rank_leaves_is_waited_for(holdfast: Holdfast, left: str) -> None:
    ran = holdfast.run("--leftover-wait", "60", *BASH, left)
    assert (ran.status, ran.report["phrase"]) == (0, "Succeeded")
    assert (holdfast.dir / "uploaded").read_text() == "whole\n"
    assert "killed" not in ran.err
    assert ran.report["evidence"] == []


def test_a_fork_of_a_python_that_succeeded_is_waited_for(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, pathlib, time
        if os.fork() == 0:
            time.sleep(1)
            pathlib.Path("uploaded").write_text("whole")
        """
    )
    assert holdfast.run("--leftover-wait", "60", script).status == 0
    assert (holdfast.dir / "uploaded").read_text() == "whole"


@pytest.mark.parametrize("wait_s", ["0", "0.2"])
def test_what_does_not_end_in_time_is_asked_and_named(holdfast: Holdfast, wait_s: str) -> None:
    left = "setsid bash -c 'trap \"echo asked >asked; exit\" TERM; echo up >up; while :; do sleep 0.1; done' &"
    waits = "until [ -e up ]; do sleep 0.05; done"
    ran = holdfast.run("--leftover-wait", wait_s, *BASH, f"{left} {waits}")
    assert (ran.status, ran.report["phrase"]) == (0, "Succeeded")
    assert (holdfast.dir / "asked").read_text() == "asked\n"
    [evidence] = ran.report["evidence"]
    assert evidence["text"].startswith("killed what rank 0 had left running: bash -c trap ")
    assert "after its end (--leftover-wait waits longer)" in evidence["text"]
    assert "left     killed what rank 0 had left running: bash -c trap" in ran.err
    assert "killed what rank 0 had left running" in holdfast("show").out
    assert "killed what rank 0 had left running" in holdfast("show", "--verbose").out


def test_what_ignores_sigterm_is_killed_and_named(holdfast: Holdfast) -> None:
    left = "setsid bash -c 'trap \"\" TERM; echo up >up; exec sleep 600' & until [ -e up ]; do sleep 0.05; done"
    ran = holdfast.run("--leftover-wait", "0.1", "--grace", "0.5", *BASH, left)
    assert ran.status == 0
    [evidence] = ran.report["evidence"]
    assert ", by SIGKILL)" in evidence["text"]


def test_it_is_named_whose_it_was_before_each_restart(holdfast: Holdfast) -> None:
    code = 'import os, subprocess as s\nr = int(os.environ["RANK"])\nr and s.Popen(["sleep", "611"]) and os._exit(7)\n'
    script = holdfast.script(code + "import time; time.sleep(600)\n")
    options = ("--nproc-per-node", "2", "--max-restarts", "1", "--same-failure", "off", "--leftover-wait", "0.1")
    ran = holdfast.run(*options, script)
    assert ran.report["phrase"] != "Succeeded"
    assert ran.err.count("killed what rank 1 had left running: sleep 611 (pid ") == 2, "a line, and the report's entry"
    assert "rank 0 had left" not in ran.err, "what was running below a rank that was stopped is no leftover"


def test_forks_of_a_rank_that_failed_get_no_time(holdfast: Holdfast) -> None:
    """With the time of this test they would hold it up until its limit."""
    script = holdfast.script(
        """
        import multiprocessing, os, subprocess, sys, time

        def work():
            time.sleep(600)

        if __name__ == "__main__":
            for start in ("fork", "spawn"):
                multiprocessing.get_context(start).Process(target=work).start()
            os._exit(3)
        """
    )
    ran = holdfast.run("--max-restarts", "0", "--leftover-wait", "1000", "--grace", "2000", script)
    assert ran.report["original"]["exit_code"] == 3
    assert "left running" not in ran.err


FILTERS = {
    "process substitution": "exec > >(sed 's/^/F /' | (sleep 0.5; cat)) 2>&1; {python} fails.py",
    "block buffering": "exec > >(grep -v nothing) 2>&1; {python} fails.py",
    "pipe": "set -o pipefail; {python} fails.py 2>&1 | (sleep 0.5; sed 's/^/F /')",
    "loop of a shell": 'exec > >(while read -r line; do sleep 0.01; echo "$line"; done) 2>&1; {python} fails.py',
    "errors only": "exec 2> >(sleep 0.5; cat >&2); {python} fails.py",
}


@pytest.mark.key
@pytest.mark.parametrize("filtered", FILTERS.values(), ids=FILTERS)
def test_text_that_a_filter_holds_explains_the_rank(holdfast: Holdfast, filtered: str) -> None:
    holdfast.script("print('step 1')\nraise IndexError('label 17 is out of range')\n", "fails.py")
    ran = holdfast.run("--max-restarts", "0", *BASH, filtered.format(python=sys.executable))
    assert ran.report["exception"] == "IndexError"
    assert "label 17 is out of range" in ran.err


SAVES = """
import signal, sys, time

def save(*_):
    for part in range(10):
        print("part", part, flush=True)
        time.sleep(0.05)
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
open("up", "w").write("1")
time.sleep(600)
"""
TEES = {
    "pipe": "{python} job.py | tee tee.log; exit $?",
    "two filters": "{python} job.py | sed -u s/saved/SAVED/ | tee tee.log; exit $?",
    "process substitution": "exec > >(tee tee.log) 2>&1; {python} job.py; exit $?",
    "a filter in Python": "{python} job.py | {python} -uc 'import sys; list(map(print, sys.stdin))' >tee.log; :",
}


@pytest.mark.key
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("tee", TEES.values(), ids=TEES)
def test_a_trainer_that_saves_keeps_its_tee(holdfast: Holdfast, tee: str, number: int) -> None:
    holdfast.script(SAVES.replace("SIGTERM", signal.Signals(number).name))
    process = holdfast.start("run", "--no-checks", *BASH, tee.format(python=sys.executable))
    wait_for(holdfast.dir / "up")
    process.send_signal(number)
    assert holdfast.finish(process).status == 250
    assert (holdfast.dir / "tee.log").read_text().lower().split()[-2:] == ["9", "saved"]


def test_a_trainer_that_reads_a_pipe_is_asked(holdfast: Holdfast) -> None:
    """It saves, so it is no filter, though another process writes to its stdin."""
    holdfast.script(SAVES)
    process = holdfast.start("run", "--no-checks", *BASH, f"yes | {sys.executable} job.py >out; exit $?")
    wait_for(holdfast.dir / "up")
    process.send_signal(signal.SIGTERM)
    assert holdfast.finish(process).status == 250
    assert (holdfast.dir / "out").read_text().endswith("saved\n")


def test_a_request_to_stop_ends_the_wait(holdfast: Holdfast) -> None:
    """The wait of this test is longer than its limit."""
    left = "setsid bash -c 'echo up >up; exec sleep 600' & until [ -e up ]; do sleep 0.05; done"
    process = holdfast.start("run", "--no-checks", "--leftover-wait", "1000", *BASH, left)
    wait_for(holdfast.dir / "up")
    assert process.stderr is not None
    line = next(line for line in process.stderr if "waiting" in line)
    assert "waiting up to 16 min 40 s (--leftover-wait) for what rank 0 has left running: sleep 600 (pid " in line
    process.send_signal(signal.SIGTERM)
    holdfast.finish(process)
