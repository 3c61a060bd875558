"""NVML in live runs, where the kernel log cannot be read: a stand-in library in the real process that waits in it."""

from __future__ import annotations

import os
import signal
import textwrap
import time

import psutil
import pytest

from conftest import Holdfast, wait_for

pytestmark = pytest.mark.real

PYNVML = """
import json, os, time, pathlib, types
nvmlEventTypeXidCriticalError = 8
class NVMLError(Exception): pass
here = pathlib.Path(__file__).parent
def nvmlInit():
    if (here / "no-driver").exists():
        raise NVMLError("Driver Not Loaded")
def nvmlDeviceGetCount(): return 4
def nvmlEventSetCreate(): return "set"
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetPciInfo(handle): return None
def nvmlDeviceRegisterEvents(handle, kinds, events): pass
def nvmlEventSetWait_v2(events, timeout_ms):
    (here / "waits").write_text(str(os.getpid()))
    for _ in range(200):
        try:
            os.rename(here / "xid", here / "taken")
            device, code = json.loads((here / "taken").read_text())
            return types.SimpleNamespace(device=device, eventData=code)
        except FileNotFoundError:
            time.sleep(0.05)
    raise NVMLError("Timeout")
"""
STAYS_ONCE = """
import os, pathlib, time
attempt, rank = os.environ["HOLDFAST_ATTEMPT"], os.environ["RANK"]
mark = pathlib.Path(f"up-{attempt}-{rank}")
mark.write_text(os.environ["CUDA_VISIBLE_DEVICES"])
while attempt == "1" and not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


class NvmlRun:
    """A job of two workers on four GPUs, whose kernel log cannot be read."""

    def __init__(self, holdfast: Holdfast, *options: str, name: str = "job.py") -> None:
        self.holdfast = holdfast
        self.library = holdfast.dir / "library"
        self.library.mkdir(exist_ok=True)
        (self.library / "pynvml.py").write_text(textwrap.dedent(PYNVML))
        self.process = holdfast.start(
            "run", "--no-checks", "--grace", "2", "--nproc-per-node", "2", "--kernel-log", "/no/such/folder/kmsg",
            *options, holdfast.script(STAYS_ONCE, name), CUDA_VISIBLE_DEVICES="0,1,2,3", PYTHONPATH=str(self.library),
        )  # fmt: skip

    def xid(self, device: int, code: int) -> None:
        (self.library / "new").write_text(f"[{device}, {code}]")
        (self.library / "new").rename(self.library / "xid")

    def until(self, words: str) -> str:
        assert self.process.stderr is not None
        said = ""
        while words not in said.rpartition("\n")[2]:
            line = self.process.stderr.readline()
            assert line, f"it ended without saying {words!r}: {said}"
            said += "\n" + line.rstrip()
        return said

    def go(self) -> None:
        (self.holdfast.dir / "go").touch()


def test_an_xid_of_nvml_stops_the_job_and_is_its_report(holdfast: Holdfast) -> None:
    live = NvmlRun(holdfast)
    watcher = int(wait_for(live.library / "waits"))
    assert psutil.Process(watcher).name() == "holdfast-nvml"
    live.xid(0, 79)
    ran = holdfast.finish(live.process)
    [told, _] = ran.report["attempts"]
    assert ran.status == 0, ran.err
    assert (ran.status, told["report"]["phrase"], told["report"]["devices"]) == (0, "AcceleratorLost", ["gpu0"]), (
        ran.err
    )
    assert told["report"]["evidence"][0]["source"] == "nvml"
    assert told["decision"]["avoid"] == ["gpu0"]
    assert (holdfast.dir / "up-2-0").read_text() == "1,2,3"
    assert ran.err.count("NVML tells the GPUs' Xids instead") == 1
    assert not psutil.pid_exists(watcher)


def test_a_watcher_that_is_killed_costs_one_line(holdfast: Holdfast) -> None:
    live = NvmlRun(holdfast)
    os.kill(int(wait_for(live.library / "waits")), signal.SIGKILL)
    live.until("was ended by SIGKILL: Xids of the GPUs are not seen in this run")
    live.go()
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 1)
    assert "not seen" not in ran.err


def test_a_library_that_does_not_come_up_costs_one_line(holdfast: Holdfast) -> None:
    (holdfast.dir / "library").mkdir()
    (holdfast.dir / "library" / "no-driver").touch()
    live = NvmlRun(holdfast)
    live.until("NVML gives no events (Driver Not Loaded): Xids of the GPUs are not seen")
    live.go()
    assert holdfast.finish(live.process).status == 0


def test_the_watcher_leaves_for_a_reset_and_comes_back(holdfast: Holdfast) -> None:
    """It has every GPU open, as NVML wants it: a reset would fail because of it."""
    live = NvmlRun(holdfast)
    first = int(wait_for(live.library / "waits"))
    os.kill(first, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while wait_for(live.library / "waits") == str(first) and time.monotonic() < deadline:
        time.sleep(0.05)
    live.xid(1, 79)
    ran = holdfast.finish(live.process)
    assert (ran.status, ran.report["attempts"][0]["report"]["devices"]) == (0, ["gpu1"])


def test_two_jobs_that_hear_one_xid_note_it_once(holdfast: Holdfast) -> None:
    """Each has a process that waits; both hear it from the library, and only one of them tells the machine."""
    first = NvmlRun(holdfast)
    wait_for(first.library / "waits")
    second = NvmlRun(holdfast, name="other.py")
    first.until("NVML tells")
    second.until("NVML tells")
    first.xid(0, 79)
    for live in (first, second):
        live.until("gpu0: ")
    first.go()
    for live in (first, second):
        assert holdfast.finish(live.process).status == 0
    import sqlite3

    with sqlite3.connect(holdfast.home / "holdfast.db") as db:
        [(count,)] = db.execute("SELECT count(*) FROM fault_log WHERE kind = 'event'")
    db.close()
    assert count == 1
