"""Shared fixtures: a real `holdfast` in a state directory of its own, which must leave nothing behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from containers import Container, exchange
from eyes import Eyes, a_chromium, missing_browser
from hypothesis import HealthCheck, settings
from real_kubernetes import Kubernetes
from real_kubernetes import missing as missing_kubernetes
from real_slurm import Slurm
from real_slurm import missing as missing_slurm
from roots import missing as missing_roots
from roots import root
from web_site import home_with_jobs, jobs, web, web_of  # noqa: F401 - fixtures: pytest finds them here

from drilling import Cluster, nodes
from leftovers import living
from netns import missing

# A landing is judged by its own change, not by what a fresh random number happens to find in last month's code:
# there the same examples run each time. Everybody's own runs go on searching.
# No deadline, and no limit to the time that drawing takes: a busy machine must not fail an example that is right.
_PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", **_PATIENT)
settings.register_profile("landing", derandomize=True, print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "image_of" in getattr(item, "fixturenames", ()):
            item.add_marker("bundle")
            item.add_marker("real")
        if "slurm_of" in getattr(item, "fixturenames", ()):
            item.add_marker("slurm")
            item.add_marker("real")
        if "kubernetes_of" in getattr(item, "fixturenames", ()):
            item.add_marker("kubernetes")
            item.add_marker("real")
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            item.add_marker("real")


@dataclass
class Ran:
    """One finished `holdfast` command."""

    status: int
    out: str
    err: str
    home: Path

    @property
    def report(self) -> dict[str, Any]:
        """The newest job's report.json."""
        [*_, newest] = sorted(self.home.glob("jobs/*/report.json"), key=lambda path: path.stat().st_mtime)
        report: dict[str, Any] = json.loads(newest.read_text())
        return report

    @property
    def job_dir(self) -> Path:
        return self.home / "jobs" / str(self.report["job"]["id"])


OF_THE_CALLER = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHON_EXEC", "COLUMNS", "LINES", "GITHUB_STEP_SUMMARY")
"""A test decides by itself which Python its workers get, how wide its terminal is (xdist sets a width), who is told."""


class Holdfast:
    """Runs real commands. `token` is in every worker's environment: what survives is found by it."""

    def __init__(self, tmp_path: Path) -> None:
        self.dir = tmp_path
        self.home = tmp_path / "home"
        self.python = sys.executable
        self.token = f"HF_TEST_{os.getpid()}_{time.monotonic_ns()}"
        self.env = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("HOLDFAST_", "PET_")) and k not in OF_THE_CALLER
            },
            "HOLDFAST_HOME": str(self.home),
            self.token: "1",
        }

    def script(self, text: str, name: str = "job.py") -> Path:
        path = self.dir / name
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, *args: str | Path, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.python, "-m", "holdfast", *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**self.env, **env},
            cwd=self.dir,
        )

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 30) -> Ran:
        out, err = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, out, err, self.home)

    def __call__(self, *args: str | Path, timeout_s: float = 30, **env: str) -> Ran:
        return self.finish(self.start(*args, **env), timeout_s)

    def run(self, *args: str | Path, timeout_s: float = 30, **env: str) -> Ran:
        """`holdfast run --no-checks …`"""
        return self("run", "--no-checks", *args, timeout_s=timeout_s, **env)

    def survivors(self) -> list[str]:
        """Processes of this test that live, zombies left out."""
        return living(self.token)


def free_port() -> int:
    """A port without a listener now: tests of several people may run on one machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Path, timeout_s: float = 30) -> str:
    """The content of a file that a worker will write."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if what.exists() and (text := what.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{what} was not written within {timeout_s} s")


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Holdfast]:
    """A `holdfast` of its own; at teardown nothing that it started may live."""
    tool = Holdfast(tmp_path)
    yield tool
    left = tool.survivors()
    for line in left:
        os.kill(int(line.split()[0]), 9)
    assert not left, f"left behind: {left}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """`cluster(3)`: a job over three nodes in network namespaces; when its runs are over, nothing of them may live."""
    if why := missing():
        pytest.skip(why)
    with ExitStack() as stack:

        def make(count: int, **how: Any) -> Cluster:
            token = f"HF_TEST_{os.getpid()}_{time.monotonic_ns()}"
            return stack.enter_context(nodes(tmp_path, count, token, **how))

        yield make


@pytest.fixture
def slurm_of() -> Iterator[Callable[..., Slurm]]:
    """`slurm_of(nodes=2, kill_wait_s=30)`: a real cluster; once its jobs are over, nothing of them may live."""
    with ExitStack() as stack:
        clusters: list[Slurm] = []

        def make(nodes: int = 3, **how: Any) -> Slurm:
            if why := missing_slurm(db=bool(how.get("db"))):
                assert "HOLDFAST_TESTS_NEED_SLURM" not in os.environ, why
                pytest.skip(why)
            token = f"HF_TEST_{os.getpid()}_{time.monotonic_ns()}"
            clusters.append(stack.enter_context(Slurm(nodes, token=token, **how)))
            return clusters[-1]

        yield make
        for cluster in clusters:
            print(cluster.told())  # pytest shows it where the test failed
            cluster.end_jobs()
            cluster.nothing_left()


@pytest.fixture
def slurm(slurm_of: Callable[..., Slurm]) -> Slurm:
    """A real cluster of three nodes."""
    return slurm_of()


@pytest.fixture(scope="session")
def kubernetes_of() -> Iterator[Callable[..., Kubernetes]]:
    """`kubernetes_of(nodes=2, images=[…])`: a real cluster, the same one for all tests that ask for it in these words.

    A test has a namespace of its own there (`kubernetes.namespace()`), and boots the nodes that it switches off.
    """
    with ExitStack() as stack:
        clusters: dict[str, Kubernetes] = {}

        def make(nodes: int = 3, **how: Any) -> Kubernetes:
            if why := missing_kubernetes():
                assert "HOLDFAST_TESTS_NEED_KUBERNETES" not in os.environ, why
                pytest.skip(why)
            words = repr((nodes, sorted(how.items())))
            if words not in clusters:
                clusters[words] = stack.enter_context(Kubernetes(nodes, **how))
            return clusters[words]

        yield make


@pytest.fixture
def kubernetes(kubernetes_of: Callable[..., Kubernetes]) -> Kubernetes:
    """A real cluster of three nodes, which other tests use before and after."""
    return kubernetes_of()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real Chromium, the same one for all tests of this process."""
    if why := missing_browser():
        assert "HOLDFAST_TESTS_NEED_BROWSER" not in os.environ, why
        pytest.skip(why)
    with a_chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any) -> Iterator[Eyes]:
    """Opens pages and finds their faults: tests/browser/README.md. No page may have an error on its console."""
    eyes = Eyes(chromium)
    yield eyes
    eyes.close()
    assert eyes.console_errors == []


@pytest.fixture
def image_of() -> Callable[..., Container]:
    """`image_of("musl", read_only=True)`: a container of that image (roots.py), with the runtime laid down in it."""
    if why := missing_roots():
        assert "HOLDFAST_TESTS_NEED_BUNDLE" not in os.environ, why
        pytest.skip(why)
    return lambda name, **how: Container(root(name), exchange(), **how)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """A command that a test runs in this very process makes the umask private: the next test has its own again."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def width_of_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that a test loads may tell its terminal's width to all that come after."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
