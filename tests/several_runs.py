"""Several `holdfast run`s on one machine, each with a state directory of its own: each is one node of one job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import free_port

TRAINS_TILL_END = """
import json, os, sys, time
out = sys.argv[1]
rank, attempt = os.environ["RANK"], os.environ["HOLDFAST_ATTEMPT"]
me = f"{out}/{attempt}-{rank}"
with open(me + ".part", "w") as file:
    json.dump({"pid": os.getpid(), **os.environ}, file)
os.rename(me + ".part", me)
print("trainer of rank", rank, flush=True)
printed = False
while not os.path.exists(f"{out}/end"):
    if not printed and os.path.exists(f"{out}/print-{rank}"):
        printed = True
        for number in range(10000):
            print("line", number, "of rank", rank, flush=True)
    if os.path.exists(f"{out}/fail-{attempt}-{rank}"):
        raise ValueError("no such shard: 17")
    time.sleep(0.02)
"""
RUNS_WAIT_S = 60.0


class Runs:
    """The nodes of one job. `runs[0]` is the one that was started first: it hosts the owner."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = free_port()
        self.out = place / "out"
        self.out.mkdir()
        self.trainer = place / "trainer.py"
        self.trainer.write_text(TRAINS_TILL_END)
        self.key = self.new_key("key")
        #: All runs share a state directory, as on a cluster with shared homes.
        self.one_home = False
        self.runs: list[subprocess.Popen[bytes]] = []

    def new_key(self, name: str) -> Path:
        key = self.place / name
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        return key

    def start(self, *options: str, key: Path | None = None, nnodes: str = "3", first: bool = False) -> int:
        """One more node; its number."""
        number = len(self.runs)
        home = self.place / ("home" if self.one_home else f"home{number}")
        words = ["--nnodes", nnodes, "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--no-checks"]
        words += ["--job-key", str(key or self.key), "--report", str(self.place / f"report{number}.json"), *options]
        with self.said_file(number).open("wb") as said:
            run = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "run", *words, str(self.trainer), str(self.out)],
                env={**os.environ, "HOLDFAST_HOME": str(home)},
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        self.runs.append(run)
        return number

    def start_all(self, count: int = 3, *options: str, nnodes: str = "") -> None:
        """The first is the owner's node: the others come when its port is open."""
        for number in range(count):
            self.start(*options, nnodes=nnodes or str(count))
            if number == 0:
                self.wait(lambda: "logs in" in self.said(0), "the owner to listen")

    # -------------------------------------------------------------------------------------- what is seen

    def said_file(self, number: int) -> Path:
        return self.place / f"said{number}"

    def said(self, number: int) -> str:
        return self.said_file(number).read_text(errors="replace")

    def all_said(self) -> str:
        return "\n".join(f"--- run {number}\n{self.said(number)}" for number in range(len(self.runs)))

    def wait(self, seen: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + RUNS_WAIT_S
        while not seen():
            assert time.monotonic() < deadline, f"waited for {what} in vain:\n{self.all_said()}"
            time.sleep(0.02)

    def wait_for(self, number: int, words: str) -> None:
        """A run has said this."""
        self.wait(lambda: words in self.said(number), f"{words!r} of run {number}")

    def worker(self, attempt: int, rank: int) -> dict[str, Any]:
        """The environment of a worker, and its pid."""
        path = self.out / f"{attempt}-{rank}"
        self.wait(path.exists, f"rank {rank} of attempt {attempt}")
        known: dict[str, Any] = json.loads(path.read_text())
        return known

    def workers(self, attempt: int, count: int) -> list[dict[str, Any]]:
        return [self.worker(attempt, rank) for rank in range(count)]

    def process(self, number: int, name: str, other_than: int = 0, below: str = "") -> int:
        """The pid of this run's owner or agent, which may be another one than before; or of a child of one."""
        found: list[int] = []

        def look() -> bool:
            children = psutil.Process(self.runs[number].pid).children(recursive=bool(below))
            found[:] = [child.pid for child in children if _name_of(child) == name and child.pid != other_than]
            return bool(found)

        self.wait(look, f"a process {name} of run {number}")
        return found[0]

    # -------------------------------------------------------------------------------------- what is done

    def ask(self, number: int, *words: str) -> int:
        """The exit status of another command of holdfast, with the state directory of this run."""
        env = {**os.environ, "HOLDFAST_HOME": str(self.place / f"home{number}")}
        done = subprocess.run([sys.executable, "-m", "holdfast", *words], env=env, capture_output=True, check=False)
        return done.returncode

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """The workers leave with status 0."""
        (self.out / "end").touch()

    def codes(self) -> list[int]:
        """The exit status of each run, once all have ended."""
        try:
            return [run.wait(RUNS_WAIT_S) for run in self.runs]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a run does not end:\n{self.all_said()}") from None

    def report(self, number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / f"report{number}.json").read_text())
        return found

    def close(self) -> None:
        for run in self.runs:
            if run.poll() is None:
                left = psutil.Process(run.pid).children(recursive=True)
                run.kill()
                for process in left:
                    _kill(process)
            run.wait()


def _name_of(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass  # it ended with its guard


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    try:
        yield runs
    finally:
        runs.close()
