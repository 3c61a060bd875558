"""Shared fixtures: a real `holdfast` in a state directory of its own, which must leave nothing behind.

Which tests run is chosen here, by suites.py. No test reads the machine's own configuration of Slurm, Kubernetes, git or
pip, and all that a test writes lies below the temporary directory: HOME is there too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from web_site import home_with_jobs, jobs, web, web_of  # noqa: F401 - fixtures: pytest finds them here

import suites
from leftovers import guard, living, new_token

if TYPE_CHECKING:
    from containers import Container
    from eyes import Eyes
    from real_kubernetes import Shared
    from real_slurm import Pool, Slurm

    from drilling import Cluster

# A landing is judged by its own change, not by what a fresh random number happens to find in last month's code:
# there the same examples run each time. Everybody's own runs go on searching.
# No deadline, and no limit to the time that drawing takes: a busy machine must not fail an example that is right.
_PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", **_PATIENT)
settings.register_profile("landing", derandomize=True, print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

#: A test that takes one of these fixtures is of that suite.
BY_FIXTURE = {"image_of": "bundle", "slurm_of": "slurm", "kubernetes_shared": "kubernetes", "chromium": "browser"}
#: Lines of a failure that are printed when it happens; the end of the run has all of them.
SHOWN_LINES = 30
#: Variables of holdfast's that are for tests.
TEST_VARIABLES = (
    *("HOLDFAST_TESTS_", "HOLDFAST_GOLDEN", "HOLDFAST_WRITE_", "HOLDFAST_WALK", "HOLDFAST_FUZZ"),
    "HOLDFAST_FAULT_CASES",
)
#: The home directory of this test run; the processes of xdist share it.
_HOME = "HOLDFAST_TESTS_HOME"
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_FAILED = pytest.StashKey[bool]()


def _leave_the_machine_alone() -> None:
    """Take what is the machine's or the user's own out of the environment of all tests."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # What suites with images and clusters have built once.
    os.environ.setdefault("HOLDFAST_TESTS_CACHE", str(Path(cache) / "holdfast-tests"))
    theirs = ("HOLDFAST_", "SLURM", "SBATCH_", "SALLOC_", "SQUEUE_", "KUBE", "GIT_", "XDG_", "PET_", "TORCHELASTIC_")
    for name in [name for name in os.environ if name.startswith(theirs)]:
        if not name.startswith(TEST_VARIABLES):
            del os.environ[name]
    if (pythons := Path.home() / ".pyenv").is_dir():
        os.environ.setdefault("PYENV_ROOT", str(pythons))  # else its commands find no Python
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background so, and every process that a test starts would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    home = os.environ.setdefault(_HOME, "") or tempfile.mkdtemp(prefix="holdfast-tests-home-")
    Path(home).chmod(0o755)
    # `python` in a job file, or behind a shell, is the Python that runs the tests.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    os.environ |= {
        _HOME: home,
        "HOME": home,
        "PATH": path,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


_leave_the_machine_alone()


def _of_xdist(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everything", action="store_true", help="run all suites; one that cannot run here fails")


def pytest_configure(config: pytest.Config) -> None:
    for suite in suites.SUITES:
        config.addinivalue_line("markers", f"{suite.name}: {suite.about}")
    config.addinivalue_line("markers", f"{suites.KEY_MARKER}: a real run that runs by default")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _of_xdist(config):
        shutil.rmtree(os.environ[_HOME], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of suites that were not asked for. Before pytest looks for the markers that `-m` names."""
    option = config.option
    asked = suites.choice(config.args, option.markexpr or "", everything=option.everything)
    kept, dropped, left_out = [], [], dict[str, int]()
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if suite := BY_FIXTURE.get(fixture):
                item.add_marker(suite)
                item.add_marker("real")
        if name := asked.left_out(suites.markers_of(item), item.path, item.nodeid.partition("::")[2]):
            left_out[name] = left_out.get(name, 0) + 1
            dropped.append(item)
        else:
            kept.append(item)
    config.stash[_LEFT_OUT] = left_out
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _say_what_runs(config: pytest.Config, count: int) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    asked = suites.choice(config.args, config.option.markexpr or "", everything=config.option.everything)
    out = [suite for suite in suites.SUITES if suite.name not in asked.suites]
    if terminal is None:
        return
    terminal.ensure_newline()
    terminal.write_line(f"{count} tests run")
    if out:
        terminal.write_line("left out, since these were not asked for (-m NAME, a path, or --everything for all):")
    for suite in out:
        terminal.write_line(f"  {suite.name:<11}{suite.about}")


def pytest_collection_finish(session: pytest.Session) -> None:
    if not _of_xdist(session.config) and session.config.pluginmanager.get_plugin("dsession") is None:
        _say_what_runs(session.config, len(session.items))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    if node.gateway.id == "gw0":
        _say_what_runs(node.config, len(ids))


class _Failures:
    """Prints each failure when it happens: a run of minutes must not keep it until its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None:
            return
        lines = report.longreprtext.split("\n")
        terminal.ensure_newline()
        terminal.write_line(f"FAILED ({report.when}) {report.nodeid}", red=True)
        for line in lines[-SHOWN_LINES:]:
            terminal.write_line(f"    {line}")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not _of_xdist(session.config):
        session.config.pluginmanager.register(_Failures(session.config))


def pytest_runtest_setup(item: pytest.Item) -> None:
    suites.must_be_able_to_run(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """For fixtures: whether their test has failed."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_tests() -> Iterator[None]:
    """Where pytest itself is killed, a guard ends what its tests have started."""
    process = guard()
    yield
    process.communicate()


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


#: A test decides by itself which Python its workers get, how wide its terminal is (xdist sets a width), who is told.
OF_THE_CALLER = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHON_EXEC", "COLUMNS", "LINES", "GITHUB_STEP_SUMMARY")


class Holdfast:
    """Runs real commands. `token` is in every worker's environment: what survives is found by it."""

    def __init__(self, tmp_path: Path) -> None:
        self.dir = tmp_path
        self.home = tmp_path / "home"
        self.python = sys.executable
        self.token = new_token()
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

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 90) -> Ran:
        out, err = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, out, err, self.home)

    def __call__(self, *args: str | Path, timeout_s: float = 90, **env: str) -> Ran:
        return self.finish(self.start(*args, **env), timeout_s)

    def run(self, *args: str | Path, timeout_s: float = 90, **env: str) -> Ran:
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


def wait_for(what: Path, timeout_s: float = 90) -> str:
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
    from drilling import nodes
    from netns import missing

    if why := missing():
        pytest.skip(why)
    with ExitStack() as stack:

        def make(count: int, **how: Any) -> Cluster:
            return stack.enter_context(nodes(tmp_path, count, new_token(), **how))

        yield make


@pytest.fixture(scope="session")
def slurm_pool() -> Iterator[Pool]:
    from real_slurm import Pool

    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def slurm_of(request: pytest.FixtureRequest, slurm_pool: Pool) -> Iterator[Callable[..., Slurm]]:
    """`slurm_of(nodes=2, kill_wait_s=30)`: a real cluster; once its jobs are over, nothing of them may live.

    Tests that ask for it in the same words share one, unless a test breaks it (a node off, a daemon killed, a drain).
    """
    from real_slurm import missing

    clusters: list[Slurm] = []

    def make(nodes: int = 3, **how: Any) -> Slurm:
        if why := missing(db=bool(how.get("db"))):
            pytest.fail(why, pytrace=False)
        clusters.append(slurm_pool.take(nodes, new_token(), **how))
        return clusters[-1]

    yield make
    whole = _FAILED not in request.node.stash
    try:
        for cluster in clusters:
            if whole:
                cluster.end_jobs()
                cluster.nothing_left()
            else:
                print(cluster.told())  # pytest shows it with the failure
    except BaseException:
        whole = False
        raise
    finally:
        for cluster in clusters:
            slurm_pool.give_back(cluster, whole=whole)


@pytest.fixture
def slurm(slurm_of: Callable[..., Slurm]) -> Slurm:
    """A real cluster of three nodes."""
    return slurm_of()


@pytest.fixture(scope="session")
def kubernetes_shared() -> Iterator[Shared]:
    """The one real cluster of this test run."""
    from real_kubernetes import shared

    with shared(Path(os.environ[_HOME])) as cluster:
        yield cluster


@pytest.fixture
def kubernetes(kubernetes_shared: Shared) -> Iterator[Shared]:
    """A real cluster, which other tests use at the same time: a test has namespaces of its own there."""
    with kubernetes_shared.used():
        yield kubernetes_shared


@pytest.fixture
def kubernetes_breaks(kubernetes_shared: Shared) -> Iterator[Shared]:
    """The same, for a test that breaks nodes: `cluster.breakable` are for it alone."""
    with kubernetes_shared.used(breaks=True):
        yield kubernetes_shared


@pytest.fixture
def kubernetes_alone(kubernetes_shared: Shared) -> Iterator[Shared]:
    """The same, for a test that nothing else may run beside."""
    with kubernetes_shared.used(alone=True):
        yield kubernetes_shared


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real Chromium, the same one for all tests of this process."""
    from eyes import a_chromium

    with a_chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any) -> Iterator[Eyes]:
    """Opens pages and finds their faults: tests/browser/README.md. No page may have an error on its console."""
    from eyes import Eyes

    eyes = Eyes(chromium)
    yield eyes
    eyes.close()
    assert eyes.console_errors == []


@pytest.fixture
def image_of() -> Callable[..., Container]:
    """`image_of("musl", read_only=True)`: a container of that image (roots.py), with the runtime laid down in it."""
    from containers import Container, exchange
    from roots import root

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
