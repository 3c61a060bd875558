"""What the tests of the pages share: a server as it is asked over HTTP, and runs of `holdfast` for it to show."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

WORKER = """
    import os, sys, time
    rank, attempt = int(os.environ["RANK"]), int(os.environ["HOLDFAST_ATTEMPT"])
    print(f"step 1 loss 2.5 of rank {rank}", flush=True)
    if attempt < FAILS and rank == 1:
        raise ValueError(f"expected 4 columns, got {attempt}")
    print("done", flush=True)
"""


@dataclass
class Answer:
    """One answer of the server."""

    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Served:
    """A running server, and requests to it over a connection of their own."""

    process: subprocess.Popen[str]
    url: str
    home: Path

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    def at(self, path: str) -> str:
        """A link to a page, as one would type it."""
        return f"http://127.0.0.1:{self.port}{path}{'&' if '?' in path else '?'}token={self.token}"

    def ask(
        self,
        path: str,
        *,
        token: bool = True,
        method: str = "GET",
        body: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        given = {"Authorization": f"Bearer {self.token}"} if token else {}
        connection.request(method, path, body=body, headers={**given, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return Answer(answer.status, text, {name.lower(): value for name, value in answer.getheaders()})


def environment(home: Path) -> dict[str, str]:
    dropped = ("HOLDFAST_", "PET_", "VIRTUAL_ENV", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "HOLDFAST_HOME": str(home)}


def run(home: Path, script: Path, *words: str) -> int:
    """One `holdfast run` of two ranks to its end."""
    typed = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--nproc-per-node", "2", *words, str(script)]
    return subprocess.run(typed, env=environment(home), capture_output=True, timeout=120, check=False).returncode


def script(folder: Path, text: str, name: str = "job.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture(scope="session")
def home_with_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that ran for real: one that succeeded, one that was started again, one that failed for good."""
    folder = tmp_path_factory.mktemp("web")
    home = folder / "home"
    fails = [("good", 0), ("again", 2), ("broken", 9)]
    for name, count in fails:
        run(home, script(folder, WORKER.replace("FAILS", str(count)), f"{name}.py"), "--name", name)
    return home


@contextmanager
def servers() -> Iterator[Callable[..., Served]]:
    """Starts `holdfast web` on a state directory; all of them are ended at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(home: Path, *words: str) -> Served:
        typed = [sys.executable, "-m", "holdfast", "web", "--port", "0", *words]
        process = subprocess.Popen(
            typed, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return Served(process, process.stdout.readline().strip(), home)

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)


@pytest.fixture(scope="module")
def web_of() -> Iterator[Callable[..., Served]]:
    """Starts a server, which is ended with the tests of the file: each costs a little as long as it is there."""
    with servers() as start:
        yield start


@pytest.fixture(scope="session")
def web(home_with_jobs: Path) -> Iterator[Served]:
    """A server on the home with jobs."""
    with servers() as start:
        yield start(home_with_jobs)


@pytest.fixture(scope="session")
def jobs(web: Served) -> dict[str, str]:
    """The ids of its jobs by name."""
    return {job["name"]: job["id"] for job in web.ask("/jobs.json").json["jobs"]}
