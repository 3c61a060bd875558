"""Rounds of checks in real processes: every path through the director, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from holdfast import children
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckChoice, InconclusivePolicy, Site
from holdfast.model.events import ChecksFinished
from holdfast.node.check_entry import (
    CheckChange,
    CheckPlan,
    CheckRound,
    CheckWatch,
    Progress,
    choices_from_text,
    during_job,
    plan_checks,
    run_round,
)

pytestmark = pytest.mark.real

PLUGIN = '''
import os, subprocess, sys, time
from pathlib import Path
from holdfast.checks import *
from holdfast.checks import PreCheckOperator, PreCheckResult

HERE = Path(__file__).parent

class Base(PreCheckOperator):
    @classmethod
    def get_retry_interval_secs(cls):
        return 0.01
    def failed_actions(self, *args, **kwargs):
        return [AvoidNode()]
    def check(self, *args, **kwargs):
        return PreCheckResult()

class Second(Base):
    """Fails once, then passes."""
    def check(self, *args, **kwargs):
        seen = HERE / "seen"
        if seen.exists():
            return PreCheckResult()
        seen.touch()
        return PreCheckResult(3, "the switch is still booting", kwargs["nodes"][:1])

class BadRack(Base):
    """Node a is bad, on any node."""
    def check(self, *args, **kwargs):
        bad = [node for node in kwargs["nodes"] if node.name == "node-a"]
        return PreCheckResult(1 if bad else 0, "2 of 8 fans turn", bad)

class Everywhere(Base):
    def check(self, *args, **kwargs):
        return PreCheckResult(1, "no cooling at all", kwargs["nodes"])

class Stops(Everywhere):
    def failed_actions(self, *args, **kwargs):
        return [StopJob("the site is closed")]

class Nothing(Everywhere):
    def failed_actions(self, *args, **kwargs):
        return []

class Undecided(Everywhere):
    def failed_actions(self, *args, **kwargs):
        return [object]

class Plain(Base):
    """Class methods written as plain ones, and names instead of actions."""
    def get_retry_interval_secs(self):
        return 0.02
    def check(self, nodes):
        return PreCheckResult(1, "no cooling", nodes[0])
    def failed_actions(self):
        return ["stop"]

class Noted(Everywhere):
    def failed_actions(self, *args, **kwargs):
        return [Note()]

class Hangs(Base):
    """Never answers, ignores SIGTERM, and has a grandchild in a session of its own that does the same."""
    def check(self, *args, **kwargs):
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        (HERE / "hanging").write_text(str(os.getpid()))
        time.sleep(600)

class Aborts(Base):
    def check(self, *args, **kwargs):
        print("the firmware answered nonsense", flush=True)
        os.abort()

class Raises(Base):
    def check(self, *args, **kwargs):
        return 1 / 0

class Exits(Base):
    def check(self, *args, **kwargs):
        sys.exit(0)

class Leaves(Base):
    def check(self, *args, **kwargs):
        os._exit(0)

class Wrong(Base):
    def check(self, *args, **kwargs):
        return True

class Chatty(Base):
    def check(self, *args, **kwargs):
        for _ in range(200):
            print("x" * 100_000)
        return PreCheckResult()

class Leaver(Base):
    """Passes, and leaves a process behind."""
    def check(self, *args, **kwargs):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        return PreCheckResult()

class Own(PreCheckResult):
    def is_success(self):
        return self.result < 5

class Lenient(Base):
    def check(self, *args, **kwargs):
        return Own(4, "4 of 5 links", [])

class Strict(Base):
    def check(self, *args, **kwargs):
        return Own(5, "0 of 5 links", [])

class Sees(Base):
    """Writes down what it was told."""
    def check(self, *args, **kwargs):
        words = [kwargs["job"], [node.name for node in kwargs["nodes"]], kwargs["attempt"], kwargs["now"] > 1e9]
        return PreCheckResult(1, repr(words), [0])

class Counts(Base):
    """Runs during a job; fails while the file `sick` is there."""
    @classmethod
    def get_running_interval_secs(cls):
        return 5
    def check(self, *args, **kwargs):
        return PreCheckResult(1, "it is sick", kwargs["nodes"]) if (HERE / "sick").exists() else PreCheckResult()
'''


@pytest.fixture
def rack_plugin(tmp_path: Path) -> Path:
    path = tmp_path / "rack.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No child of this process may live after a test."""
    before = set(psutil.Process().children(recursive=True))
    token = f"HF_CHECK_{os.getpid()}_{time.monotonic_ns()}"
    os.environ[token] = "1"
    yield
    del os.environ[token]
    # One that was killed may need a moment of the kernel's on a busy machine.
    left = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=60)[1]
    left = [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert left == []


def asked(*nodes: str, deadline_s: float = 600.0) -> RunChecks:
    return RunChecks(attempt=2, round=3, nodes=nodes, checks=None, deadline_s=deadline_s)


def settle(plan: CheckPlan, *nodes: str, deadline_s: float = 600.0) -> tuple[ChecksFinished, CheckRound]:
    site = Site(node=nodes[0] if nodes else "node-a")
    order = asked(*nodes, deadline_s=deadline_s)
    current = CheckRound(plan, site=site, now=time.monotonic(), order=order)
    return run_round(current, time.monotonic), current


def plan_with(plugin: Path, text: str, **more: object) -> CheckPlan:
    return plan_checks(choices_from_text(text), plugins=[plugin], **more)  # type: ignore[arg-type]  # shorthand


def test_the_default_set_passes_here(tmp_path: Path) -> None:
    answer, current = settle(plan_checks(None))
    assert answer.failure is None, answer
    assert answer.state == "PASS"
    assert (answer.attempt, answer.round) == (2, 3)
    assert all(progress in (Progress.PASSED, Progress.WARNED) for _, progress, _, _ in current.progress())


def test_disabled(tmp_path: Path) -> None:
    answer, _ = settle(plan_checks(()))
    assert answer.state == "DISABLED"


def test_fail_then_pass_on_retry(rack_plugin: Path) -> None:
    answer, current = settle(plan_with(rack_plugin, "second"))
    assert answer.state == "PASS"
    assert answer.warnings == ("second passed at try 2; before: node-a: the switch is still booting",)
    assert [tried for _, _, tried, _ in current.progress()] == [2]


def test_fail_avoid_pass_elsewhere(rack_plugin: Path) -> None:
    plan = plan_with(rack_plugin, "badrack:retries=0,disk")
    answer, _ = settle(plan, "node-a", "node-b", "node-c")
    assert (answer.state, answer.avoid, answer.fatal) == ("FAIL", ("node-a",), False)
    assert answer.failure is not None
    assert answer.failure.message == "node-a: 2 of 8 fans turn"
    again, _ = settle(plan, "node-b", "node-c")
    assert (again.state, again.avoid) == ("PASS", ())


def test_fail_and_nobody_left(rack_plugin: Path) -> None:
    answer, current = settle(plan_with(rack_plugin, "everywhere,second"), "node-a", "node-b")
    assert (answer.state, answer.avoid) == ("FAIL", ("node-a", "node-b"))
    assert answer.failure is not None
    assert answer.failure.nodes == ("node-a", "node-b")
    assert answer.failure.message == "node-a, node-b: no cooling at all"
    assert [(progress, tried) for _, progress, tried, _ in current.progress()] == [
        (Progress.FAILED, 4),
        (Progress.SKIPPED, 0),
    ]


@pytest.mark.parametrize(
    ("name", "fatal", "state"), [("stops", True, "FAIL"), ("nothing", True, "FAIL"), ("noted", False, "PASS")]
)
def test_what_failed_actions_ask_for(rack_plugin: Path, name: str, fatal: bool, state: str) -> None:
    answer, _ = settle(plan_with(rack_plugin, f"{name}:retries=0"), "node-a", "node-b")
    assert (answer.state, answer.fatal) == (state, fatal)


def test_a_failure_stands_whatever_its_failed_actions_do(rack_plugin: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "undecided:retries=0"))
    assert (answer.state, answer.fatal) == ("FAIL", True)
    assert answer.failure is not None
    assert answer.failure.message.startswith("node-a: no cooling at all (and its failed_actions() failed: TypeError")


def test_a_check_written_loosely(rack_plugin: Path) -> None:
    plan = plan_with(rack_plugin, "plain")
    assert plan.checks[0].step.interval_s == 0.02
    answer, _ = settle(plan, "node-a", "node-b")
    assert (answer.fatal, answer.failure and answer.failure.message) == (True, "node-a: no cooling")


def test_a_time_out_is_inconclusive_and_the_check_dies_with_its_children(rack_plugin: Path, tmp_path: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "hangs,second", timeout_s=1.0))
    assert answer.state == "PASS"
    assert answer.warnings[0] == "hangs is inconclusive: node-a: no answer within 1 s; it was stopped"
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "hanging").read_text())).wait(10)  # `TimeoutExpired`: it lives


def test_a_time_out_fails_where_the_policy_says_so(rack_plugin: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "hangs", timeout_s=0.5, inconclusive=InconclusivePolicy.FAIL))
    assert (answer.state, answer.avoid) == ("FAIL", ("node-a",))
    assert answer.failure is not None
    assert answer.failure.inconclusive


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aborts", "its process died of SIGABRT; its last words: the firmware answered nonsense"),
        ("raises", "the check itself failed: ZeroDivisionError: division by zero (rack.py:"),
        ("exits", "the check itself failed: SystemExit"),
        ("leaves", "its process ended with exit status 0 and no answer"),
        ("wrong", "check() returned bool, expected a PreCheckResult"),
    ],
)
def test_a_crash_is_inconclusive_and_says_how(rack_plugin: Path, name: str, words: str) -> None:
    answer, _ = settle(plan_with(rack_plugin, f"{name}:retries=0"))
    assert answer.state == "PASS"
    assert len(answer.warnings) == 1
    assert words in answer.warnings[0]


def test_output_without_end_does_not_hold_it_up(rack_plugin: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "chatty"))
    assert (answer.state, answer.warnings) == ("PASS", ())


def test_what_a_check_leaves_behind_is_killed(rack_plugin: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "leaver"))
    assert answer.state == "PASS"


def test_is_success_may_be_overridden(rack_plugin: Path) -> None:
    assert settle(plan_with(rack_plugin, "lenient"))[0].state == "PASS"
    answer, _ = settle(plan_with(rack_plugin, "strict:retries=0"))
    assert answer.failure is not None
    assert answer.failure.message == "node-a: 0 of 5 links"


def test_the_context_comes_as_keywords(rack_plugin: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "sees:retries=0"), "node-a", "node-b")
    assert answer.failure is not None
    assert answer.failure.message == "[None, ['node-a', 'node-b'], 2, True]"
    assert answer.avoid == ("node-a",)


def test_a_round_out_of_time_ends_by_itself(rack_plugin: Path) -> None:
    answer, _ = settle(plan_with(rack_plugin, "hangs,second"), deadline_s=0.6)
    assert answer.state == "PASS"
    assert [warning.partition(" ")[0] for warning in answer.warnings] == ["hangs", "second"]


def test_a_dead_lane_costs_only_the_check_that_killed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.observe.checks.memory import Memory

    monkeypatch.setattr(Memory, "look", lambda self, context: os.abort())
    names = ("limits", "memory", "shm", "cpu")
    plan = plan_checks(tuple(CheckChoice(name=name, params={"retries": 0}) for name in names))
    answer, current = settle(plan)
    assert [progress for _, progress, _, _ in current.progress()] == [
        Progress.PASSED,
        Progress.WARNED,
        Progress.PASSED,
        Progress.PASSED,
    ]
    assert "SIGABRT" in answer.warnings[0]


def test_a_slow_check_of_a_lane_does_not_hold_up_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.observe.checks.memory import Memory

    monkeypatch.setattr(Memory, "look", lambda self, context: time.sleep(600))
    names = ("memory", "limits", "shm")
    plan = plan_checks(tuple(CheckChoice(name=name) for name in names), timeout_s=2.0)
    answer, current = settle(plan)
    assert answer.warnings == ("memory is inconclusive: node-a: no answer within 2 s; it was stopped",)
    assert [progress for _, progress, _, _ in current.progress()][1:] == [Progress.PASSED, Progress.PASSED]


def test_kill_ends_everything_at_once(rack_plugin: Path) -> None:
    current = CheckRound(plan_with(rack_plugin, "hangs"), site=Site(node="node-a"), now=time.monotonic())
    assert len(children.helpers()) == 1
    current.kill()
    current.handle_ready(time.monotonic())
    assert current.result() is None
    assert children.helpers() == frozenset()


DIRECTOR = """
import sys, time
from holdfast.node.check_entry import *
from holdfast.model.check_results import Site
plan = plan_checks(choices_from_text("hangs"), plugins=[sys.argv[1]])
current = CheckRound(plan, site=Site(node="node-a"), now=time.monotonic())
print("started", flush=True)
run_round(current, time.monotonic)
"""


def test_the_checks_of_a_director_that_is_killed_die_with_it(rack_plugin: Path, tmp_path: Path) -> None:
    director = subprocess.Popen([sys.executable, "-c", DIRECTOR, str(rack_plugin)], stdout=subprocess.PIPE)
    assert director.stdout is not None
    assert director.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 30
    while not (tmp_path / "hanging").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    checker = psutil.Process(int((tmp_path / "hanging").read_text()))
    grandchildren = checker.children()
    director.send_signal(signal.SIGKILL)
    director.wait()
    director.stdout.close()
    _, alive = psutil.wait_procs([checker], timeout=60)
    assert alive == []
    for process in grandchildren:  # a plugin's own grandchildren are the guard's to end
        process.kill()


def test_a_replayed_director_asks_again_and_gets_its_answer(rack_plugin: Path) -> None:
    plan = plan_with(rack_plugin, "second")
    first = CheckRound(plan, site=Site(node="node-a"), now=time.monotonic(), order=asked())
    first.kill()  # the director is gone; its checks with it
    answer, _ = settle(plan)
    assert answer.state == "PASS"


def watch_checks(plan: CheckPlan, seconds: float) -> list[CheckChange]:
    """Let a watch go through simulated seconds: its checks are real, its clock is not."""
    import select

    current = CheckWatch(plan, site=Site(node="node-a"), now=0.0)
    poll = select.poll()
    poll.register(current.fileno(), select.POLLIN)
    noticed: list[CheckChange] = []
    now = 0.0
    while now <= seconds:
        noticed += current.handle_ready(now)
        if poll.poll(0 if not current.busy else 20_000):
            continue
        now = current.next_wake() or seconds + 1
    current.kill()
    return noticed


def test_a_check_that_fails_during_a_job_is_noticed_once(rack_plugin: Path, tmp_path: Path) -> None:
    plan = plan_with(rack_plugin, "counts,second,hangs")
    assert [(item.check.name, item.interval_s) for item in during_job(plan)] == [("counts", 5.0)]
    assert watch_checks(plan, 12) == []
    (tmp_path / "sick").touch()
    [noticed] = watch_checks(plan, 12)
    assert noticed.text == "check counts failed during the job: node-a: it is sick"
    assert noticed.failure is not None
    assert (noticed.failure.check, noticed.failure.nodes, noticed.failure.running) == ("counts", ("node-a",), True)


EXECUTABLE = """\
#!/bin/sh
{body}
"""


@pytest.mark.parametrize(
    ("body", "state", "message"),
    [
        ("exit 0", "PASS", ""),
        ("echo all is well; exit 0", "PASS", ""),
        ("echo '2 fans are missing'; exit 1", "FAIL", "node-a: 2 fans are missing"),
        ("echo broken >&2; exit 2", "FAIL", "node-a: broken"),
        (
            """echo '{"message": "node-a: 3 fans", "solution": "buy fans", "blame": "hardware"}'; exit 1""",
            "FAIL",
            "node-a: 3 fans",
        ),
        ("""echo '{"result": 7, "result_msg": "odd"}'; exit 0""", "FAIL", "node-a: odd"),
        ("exit 3", "INCONCLUSIVE", "unknown (exit status 3)"),
        ("kill -SEGV $$", "INCONCLUSIVE", "died of SIGSEGV"),
        ("exec sleep 600", "INCONCLUSIVE", "no answer within 2 s"),
        ("yes | head -c 30000000; exit 1", "FAIL", "node-a: y"),
        ('test "$HOLDFAST_NODES" = node-a,node-b && test "$HOLDFAST_PARAM_DEPTH" = 4', "PASS", ""),
    ],
)
def test_an_executable_as_a_check(tmp_path: Path, body: str, state: str, message: str) -> None:
    path = tmp_path / "fans.sh"
    path.write_text(EXECUTABLE.format(body=body))
    path.chmod(0o755)
    plan = plan_checks(choices_from_text("fans:retries=0;depth=4"), plugins=[path], timeout_s=2.0)
    answer, _ = settle(plan, "node-a", "node-b")
    if state == "INCONCLUSIVE":
        assert answer.state == "PASS"
        assert message in answer.warnings[0]
    else:
        assert answer.state == state
        assert answer.warnings == ()
        assert (answer.failure.message if answer.failure else "") == message
    if "solution" in body:
        assert answer.failure is not None
        assert (answer.failure.solution, answer.failure.blame) == ("buy fans", "hardware")


def test_an_executable_without_its_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "fans.sh"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    answer, _ = settle(plan_checks(choices_from_text("fans:retries=0"), plugins=[path]))
    assert "cannot be run" in answer.warnings[0]


def test_a_class_written_for_dlrover_runs_once_its_imports_are_changed(tmp_path: Path) -> None:
    path = tmp_path / "scheduling.py"
    path.write_text(
        textwrap.dedent(
            """
            from typing import List

            from holdfast.checks import DiagnosisAction, JobAbortionAction, Node, PreCheckOperator, PreCheckResult


            class SchedulingPreCheckOperator(PreCheckOperator):
                @classmethod
                def get_retry_interval_secs(cls) -> int:
                    return 15

                def check(self, *args, **kwargs) -> PreCheckResult:
                    return PreCheckResult(
                        result=1, result_msg="PENDING", abnormal_nodes=[Node("worker", 1)]
                    )

                def failed_actions(self, *args, **kwargs) -> List[DiagnosisAction]:
                    return [JobAbortionAction("pending too long", kwargs.get("result_msg"))]
            """
        )
    )
    plan = plan_checks(choices_from_text("schedulingprecheckoperator:retries=0"), plugins=[path])
    answer, _ = settle(plan, "node-a", "node-b")
    assert answer.fatal
    assert answer.failure is not None
    assert answer.failure.message == "node-b: PENDING; pending too long"
    assert answer.failure.nodes == ("node-b",)


def test_a_wait_for_another_try_is_said_once(rack_plugin: Path) -> None:
    said: list[str] = []
    for interval in ("1", "0.5"):
        plan = plan_with(rack_plugin, f"counts:retries=2;interval={interval}")
        (rack_plugin.parent / "sick").touch()
        current = CheckRound(plan, site=Site(node="node-a"), now=time.monotonic())
        assert run_round(current, time.monotonic, said.append).state == "FAIL"
    assert said == ["counts: node-a: it is sick; retrying in 1 s"], "shorter waits are not worth a line"
