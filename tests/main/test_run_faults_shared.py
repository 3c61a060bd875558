"""Two real jobs on one machine whose devices can only be reset together."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Holdfast, wait_for
from holdfast.node.devices.device_locks import DeviceLocks

pytestmark = pytest.mark.real

STAYS_ON_GPU = """
import os, pathlib, time
attempt, gpu = os.environ["HOLDFAST_ATTEMPT"], os.environ["CUDA_VISIBLE_DEVICES"]
mark = pathlib.Path(f"up-{gpu}-{attempt}")
mark.with_suffix(".new").write_text(str(os.getpid()))
mark.with_suffix(".new").rename(mark)
while attempt == "1" and not pathlib.Path(f"go-{gpu}").exists():
    time.sleep(0.05)
"""
NOTES_RESET = """#!/bin/sh
# Says what it resets, and whose workers live meanwhile.
echo "$1" >> resets
sleep 0.2
while [ -e slow ]; do sleep 0.05; done
for mark in up-*; do kill -0 $(cat $mark) 2>/dev/null && echo "$mark lives" >> resets; done
exit 0
"""


class NeighbourRun:
    """A job of one worker on one of two GPUs."""

    def __init__(self, holdfast: Holdfast, gpu: int, *, resets: bool = True) -> None:
        self.holdfast, self.gpu = holdfast, gpu
        (holdfast.dir / "rules.yaml").write_text("grace: {save_s: 5, heal_s: 1, reset_s: 60}\n")
        script = holdfast.dir / "reset"
        if not script.exists():
            script.write_text(NOTES_RESET)
            script.chmod(0o700)
        self.env = {"CUDA_VISIBLE_DEVICES": str(gpu), "HOLDFAST_FAULT_RULES": "rules.yaml"}
        command = ("--reset-command", "./reset {device}", "--reset-group", "2") if resets else ()
        self.process = holdfast.start(
            "run", "--no-checks", "--grace", "2", *command, holdfast.script(STAYS_ON_GPU), **self.env
        )

    def up(self, attempt: int = 1) -> None:
        wait_for(self.holdfast.dir / f"up-{self.gpu}-{attempt}")

    def fault(self, code: str) -> None:
        told = self.holdfast.finish(
            self.holdfast.start("faults", "report", "--device", f"gpu{self.gpu}", "--code", code, **self.env)
        )
        assert told.status == 0, told.err

    def until(self, words: str) -> None:
        assert self.process.stderr is not None
        said = []
        while words not in (line := self.process.stderr.readline()):
            said.append(line)
            assert line, f"it ended without saying {words!r}: {''.join(said)}"

    def go(self) -> None:
        (self.holdfast.dir / f"go-{self.gpu}").touch()


def resets(holdfast: Holdfast) -> list[str]:
    return (holdfast.dir / "resets").read_text().splitlines()


def test_a_reset_stops_the_other_job_too_and_happens_once(holdfast: Holdfast) -> None:
    first, second = NeighbourRun(holdfast, 0), NeighbourRun(holdfast, 1)
    first.up()
    second.up()
    first.fault("48")
    one, other = holdfast.finish(first.process, 60), holdfast.finish(second.process, 60)
    assert (one.status, other.status) == (0, 0), one.err + other.err
    assert resets(holdfast) == ["gpu0,gpu1"]
    assert (holdfast.dir / "up-0-2").exists()
    assert (holdfast.dir / "up-1-2").exists()
    assert "needs no reset any more" in one.err + other.err


def test_a_reset_waits_for_a_job_that_does_not_leave_for_it(holdfast: Holdfast) -> None:
    """The other job has no reset command, and no request to leave reaches it."""
    first, second = NeighbourRun(holdfast, 0), NeighbourRun(holdfast, 1, resets=False)
    first.up()
    second.up()
    first.fault("48")
    first.until("used by another job (pid ")
    assert not (holdfast.dir / "resets").exists()
    second.go()
    assert holdfast.finish(second.process).status == 0
    ran = holdfast.finish(first.process)
    assert ran.status == 0, ran.err
    assert resets(holdfast) == ["gpu0,gpu1"]


def test_a_job_does_not_start_on_a_device_that_another_resets(holdfast: Holdfast) -> None:
    (holdfast.dir / "slow").touch()
    first = NeighbourRun(holdfast, 0)
    first.up()
    first.fault("48")
    wait_for(holdfast.dir / "resets")
    second = NeighbourRun(holdfast, 1)
    second.until("another job resets one of gpu1; the start waits for its end")
    assert not (holdfast.dir / "up-1-1").exists()
    (holdfast.dir / "slow").unlink()
    second.up()
    second.go()
    assert holdfast.finish(second.process).status == 0
    assert holdfast.finish(first.process).status == 0
    assert resets(holdfast) == ["gpu0,gpu1"]


def test_a_job_that_waits_for_anothers_reset_can_be_stopped(holdfast: Holdfast) -> None:
    (holdfast.dir / "slow").touch()
    first = NeighbourRun(holdfast, 0)
    first.up()
    first.fault("48")
    wait_for(holdfast.dir / "resets")
    second = NeighbourRun(holdfast, 1)
    second.until("another job resets")
    second.process.send_signal(signal.SIGINT)
    assert holdfast.finish(second.process).status == 250
    (holdfast.dir / "slow").unlink()
    assert holdfast.finish(first.process).status == 0


def test_a_fault_that_one_job_is_told_of_reaches_the_other(holdfast: Holdfast) -> None:
    first, second = NeighbourRun(holdfast, 0), NeighbourRun(holdfast, 1, resets=False)
    first.up()
    second.up()
    environ = Path(f"/proc/{(holdfast.dir / 'up-0-1').read_text()}/environ").read_bytes().decode().split("\0")
    job = holdfast.home / "jobs" / next(each[13:] for each in environ if each.startswith("HOLDFAST_JOB="))
    limit = time.monotonic() + 60
    while not (job / "faults.sock").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    folder = os.open(job, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(f"/proc/self/fd/{folder}/faults.sock")
        os.close(folder)
        line = {"who": "pingmesh", "at": time.time(), "device": "gpu1", "code": "79"}
        peer.sendall(json.dumps(line).encode() + b"\n")
        assert json.loads(peer.recv(65_536)) == {"ok": True}
    second.until("gpu1: healthy → ISOLATE (79)")
    first.go()
    assert holdfast.finish(first.process).status == 0
    ran = holdfast.finish(second.process)
    assert ran.status != 0, "its only device is gone"
    assert "Xid 79" in ran.err


def test_whoever_is_killed_lets_go(holdfast: Holdfast) -> None:
    first, second = NeighbourRun(holdfast, 0), NeighbourRun(holdfast, 1, resets=False)
    first.up()
    second.up()
    first.fault("48")
    first.until("used by another job")
    # The guard is what was typed: its end is the end of all below it.
    second.process.kill()
    assert holdfast.finish(first.process).status == 0
    holdfast.finish(second.process)
    assert resets(holdfast) == ["gpu0,gpu1"]


# ---------------------------------------------------------------------------------------------- the locks alone


def test_many_share_and_one_claims(tmp_path: Path) -> None:
    said: list[str] = []
    one, two = (DeviceLocks(tmp_path, "n/1", said.append) for _ in range(2))
    assert one.share(["gpu0", "gpu1"])
    assert two.share(["gpu1"])
    assert not one.claim(["gpu0", "gpu1"])
    two.let_go(["gpu1"])
    assert one.claim(["gpu0", "gpu1"])
    assert not two.share(["gpu1", "gpu2"])
    third = DeviceLocks(tmp_path, "n/1", said.append)
    assert third.claim(["gpu2"]), "a refused try leaves nothing locked"
    for locks in (one, two, third):
        locks.close()
    assert said == []


def test_what_is_waited_for_is_ours_when_the_holder_lets_go(tmp_path: Path) -> None:
    import select

    one, two = (DeviceLocks(tmp_path, "n1", print) for _ in range(2))
    assert one.claim(["gpu0"])
    assert not two.share(["gpu0"])
    waiting = two.wait(["gpu0"], alone=False)
    assert not select.select([waiting.pidfd], [], [], 0.1)[0]
    one.close()
    assert select.select([waiting.pidfd], [], [], 20)[0]
    assert waiting.ended()
    with (tmp_path / ".device-n1-gpu0.lock").open("w") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    two.close()


def test_a_wait_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    one, two = (DeviceLocks(tmp_path, "n1", print) for _ in range(2))
    assert one.share(["gpu0"])
    assert not two.claim(["gpu0"])
    waiting = two.wait(["gpu0"], alone=True)
    waiting.give_up()
    assert not Path(f"/proc/{waiting.pid}").exists()
    one.close()
    assert one.claim(["gpu0"])
    one.close()
    two.close()


def test_a_directory_that_takes_no_lock_is_told_once_and_holds_nobody_up(tmp_path: Path) -> None:
    said: list[str] = []
    locks = DeviceLocks(tmp_path / "gone", "n1", said.append)
    assert locks.share(["gpu0", "gpu1"])
    assert locks.claim(["gpu0", "gpu1"])
    assert len(said) == 1
    assert "No such file or directory" in said[0]
    locks.close()


def test_the_holders_are_named(tmp_path: Path) -> None:
    mine = DeviceLocks(tmp_path, "n1", print)
    assert mine.share(["gpu0"])
    program = "import fcntl; fcntl.flock(0, fcntl.LOCK_SH); print('held', flush=True)"
    with (tmp_path / ".device-n1-gpu0.lock").open("r+") as file:
        other = subprocess.Popen(
            [sys.executable, "-c", program + "; import signal; signal.pause()"], stdin=file, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"held\n"
        assert mine.holders(["gpu0"]) == (other.pid,)
        assert os.getpid() not in mine.holders(["gpu0"])
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    mine.close()
