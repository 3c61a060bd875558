"""A queue with pretended devices, and its core's end with the test."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast, Ran
from processes import until

#: A worker that says which devices it has, and ends when the file `go` (or its own, named by an argument) is there.
WORKER = """
import os, sys, time
print("devices", os.environ["HOLDFAST_DEVICES"], flush=True)
while not os.path.exists(sys.argv[1] if len(sys.argv) > 1 else "go"):
    time.sleep(0.02)
"""


class QueueHome:
    """Commands of one user on one machine with some pretended devices."""

    def __init__(self, holdfast: Holdfast, devices: int = 4) -> None:
        self.holdfast = holdfast
        self.dir = holdfast.dir
        (folder := self.dir / "pretended").mkdir()
        for number in range(devices):
            (folder / f"device{number}").touch()
        holdfast.env["HOLDFAST_PRETEND_DEVICES"] = str(folder)
        self.script = holdfast.script(WORKER, "held.py")

    def __call__(self, *words: str | Path) -> Ran:
        return self.holdfast(*words)

    def submit(self, *words: str | Path, status: int = 0) -> str:
        """Submit, and return the job's id, or the message of the refusal."""
        done = self.holdfast("submit", "--platform", "local", "--json", *words)
        assert done.status == status, (done.out, done.err)
        return str(json.loads(done.out)["id"]) if not status else done.err

    def held(self, devices: int = 1, go: str = "go", *words: str) -> str:
        return self.submit("--devices", str(devices), *words, "--", "--no-checks", self.script.name, go)

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in json.loads(self("queue", "--json").out)["jobs"]}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("core", "status", "--json").out)
        return found

    def states(self, *jobs: str) -> list[str]:
        rows = self.rows()
        return [rows[job]["state"] if job in rows else "over" for job in jobs]

    def until(self, jobs: tuple[str, ...], *states: str) -> None:
        until(lambda: self.states(*jobs) == list(states), f"{jobs}: {states}, not {self.states(*jobs)}")

    def go(self, name: str = "go") -> None:
        (self.dir / name).touch()

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {job["id"]: job for job in json.loads(self("jobs", "--json").out)["jobs"]}

    def kill_core_and_wait(self) -> None:
        """Kill the core, and wait until another one answers."""
        pid = int(self.status()["pid"])
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.status()["pid"] not in (None, pid), "a core is back")


@pytest.fixture
def queue(holdfast: Holdfast) -> Iterator[QueueHome]:
    found = QueueHome(holdfast)
    yield found
    for each in ("go", "a", "b", "c", "d"):
        found.go(each)
    for job in list(found.rows()):
        found("stop", job, "--reason", "the test is over")
    until(lambda: not found.rows(), "all jobs of the queue end")
    found("core", "stop")
    until(lambda: not holdfast.survivors(), "the core and its keeper end")
