"""Two runs of one job on this machine: two nodes with a state directory each."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Holdfast, Ran, free_port, wait_for

SCRIPT = """
import os, pathlib, sys, time
rank, attempt = os.environ["RANK"], os.environ["HOLDFAST_ATTEMPT"]
def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.02)
print(f"rank {rank} of attempt {attempt}", flush=True)
print(f"a word of rank {rank}", file=sys.stderr, flush=True)
pathlib.Path(f"up-{rank}-{attempt}").write_text("up")
"""


class Pair:
    """Two runs of one job: two nodes with a state directory each, `a` with the owner."""

    def __init__(self, holdfast: Holdfast) -> None:
        self.holdfast = holdfast
        self.port = free_port()
        self.key = holdfast.dir / "key"
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        self.a, self.b = holdfast.dir / "a", holdfast.dir / "b"
        #: Options of both about their checks.
        self.checks = ["--no-checks"]
        self.runs: list[subprocess.Popen[str]] = []

    def start(self, rest: str, *options: str) -> None:
        self.start_a(rest, *options)
        self.start_b(rest, *options)
        wait_for(self.holdfast.dir / "up-0-1")
        wait_for(self.holdfast.dir / "up-1-1")

    def start_a(self, rest: str, *options: str) -> None:
        """The node with the owner, which comes first and has rank 0."""
        self._start(self.a, 1, rest, *options)
        deadline = time.monotonic() + 30
        while not list(self.a.glob("jobs/*/nodes/*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def start_b(self, rest: str, *options: str) -> None:
        self._start(self.b, 0, rest, *options)

    def _start(self, home: Path, hosts: int, rest: str, *options: str) -> None:
        script = self.holdfast.script(SCRIPT + rest)
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-endpoint", f"127.0.0.1:{self.port}"]
        words += ["--rdzv-conf", f"is_host={hosts}", "--job-key", str(self.key), "--name", "pair", *options]
        self.runs.append(self.holdfast.start("run", *self.checks, *words, script, HOLDFAST_HOME=str(home)))

    def configure(self, home: Path, text: str) -> None:
        """The settings of one node: `config.yaml` in its state directory."""
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(text)

    def on(self, home: Path, *words: str) -> Ran:
        return self.holdfast(*words, HOLDFAST_HOME=str(home))

    def until(self, text: str, home: Path, *words: str) -> Ran:
        """What the command prints once that has `text`: what a worker has done shows a moment later elsewhere."""
        deadline = time.monotonic() + 30
        while text not in (ran := self.on(home, *words)).out:
            assert time.monotonic() < deadline, ran.out + ran.err
        return ran

    def finish(self) -> list[Ran]:
        return [self.holdfast.finish(run, 60) for run in self.runs]

    def go(self, name: str = "go") -> None:
        (self.holdfast.dir / name).write_text("")

    @property
    def nodes(self) -> tuple[str, str]:
        """The name of a's node, and of b's."""
        second = json.loads(next(self.b.glob("jobs/*/nodes/*/owner.json")).read_text())["node"]
        return os.uname().nodename, second


@pytest.fixture
def pair(holdfast: Holdfast) -> Iterator[Pair]:
    made = Pair(holdfast)
    yield made
    for run in made.runs:
        run.terminate()
        if run.stdout is not None and not run.stdout.closed:
            run.communicate(timeout=60)
