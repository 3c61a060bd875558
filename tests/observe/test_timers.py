"""torch's timers: who is not done in time is killed, and the report says which timer it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.observe.timer_pipe import TimerPipe

SETS = """
import json, os, sys, time

def tell(after, scope="step", signal=9):
    until = -1 if after is None else time.time() + after
    said = {"version": 1, "pid": os.getpid(), "scope_id": scope, "expiration_time": until, "signal": signal}
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as pipe:
        print(json.dumps(said), file=pipe)

"""


@pytest.mark.real
def test_a_worker_that_is_late_is_killed_and_the_next_attempt_goes_on(holdfast: Holdfast) -> None:
    script = holdfast.script(
        SETS
        + """
tell(20, "quick")
tell(None, "quick")
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    if os.environ["RANK"] == "1":
        tell(0.3, "backward of step 7")
    time.sleep(60)
"""
    )
    ran = holdfast.run("--nproc-per-node", "2", "--grace", "1", script, TORCHELASTIC_ENABLE_FILE_TIMER="1")
    assert ran.status == 0, ran.err
    first, _ = ran.report["attempts"]
    assert first["report"]["phrase"] == "HungWorker"
    assert "the timer 'backward of step 7' of rank 1" in first["report"]["reason"]
    assert not list(holdfast.home.glob("jobs/*/timers"))


@pytest.mark.real
def test_a_timer_without_a_signal_is_told_and_kills_nobody(holdfast: Holdfast) -> None:
    script = holdfast.script(SETS + "tell(0.1, 'slow', 0)\ntime.sleep(1)\nprint('done')\n")
    pipe = str(holdfast.dir / "pipe")
    ran = holdfast.run(script, TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=pipe)
    assert ran.status == 0
    assert "the timer 'slow' of rank 0" in ran.err
    assert not os.path.lexists(pipe)


@pytest.mark.real
def test_a_file_in_the_pipes_place_stays_and_is_told(holdfast: Holdfast) -> None:
    (holdfast.dir / "notes").write_text("mine")
    ran = holdfast.run(holdfast.script("pass"), TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE="notes")
    assert ran.status == 0
    assert "torch's timers are off" in ran.err
    assert (holdfast.dir / "notes").read_text() == "mine"


@pytest.mark.torch
@pytest.mark.real
def test_torchs_own_timers(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, time
        import torch.distributed.elastic.timer as timer
        timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
        with timer.expires(after=60, scope="quick"):
            pass
        with timer.expires(after=0.5, scope="slow"):
            time.sleep(60)
        """
    )
    ran = holdfast.run("--max-restarts", "0", "--grace", "1", script, timeout_s=90, TORCHELASTIC_ENABLE_FILE_TIMER="1")
    assert ran.report["phrase"] == "HungWorker"
    assert "the timer 'slow' of rank 0" in ran.report["reason"]


# ---------------------------------------------------------------------------------------------- the pipe


def test_the_pipe_keeps_what_is_set_and_passes_over_what_is_no_timer(tmp_path: Path) -> None:
    pipe = TimerPipe(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)

    def tell(pid: int, scope: str, until: float) -> bytes:
        return json.dumps({"pid": pid, "scope_id": scope, "expiration_time": until, "signal": 9}).encode() + b"\n"

    rest = tell(3, "c", 30.0)
    os.write(writer, tell(1, "a", 10.0) + b"[" * 5000 + b"\n\xff\n{}\n" + tell(2, "b", 20.0) + rest[:7])
    pipe.read()
    assert pipe.first() == 10.0
    os.write(writer, rest[7:] + tell(2, "b", -1.0))
    pipe.read()
    pipe.read()
    assert [(timer.pid, timer.scope_id) for timer in pipe.over(15.0)] == [(1, "a")]
    assert pipe.first() == 30.0
    assert pipe.over(15.0) == []
    os.close(writer)
    pipe.close()
    assert not (tmp_path / "pipe").exists()
