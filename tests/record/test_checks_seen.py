"""Pre-checks as a user sees them: their state, failures during a job, and DLRover's operators."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast, Ran, wait_for
from holdfast.checks import EventAction, NodeAction
from holdfast.model.check_results import ActionKind

pytestmark = pytest.mark.real

FAN = """
import pathlib
from holdfast.checks import PreCheckOperator, PreCheckResult, StopJob

class Fan(PreCheckOperator):
    @classmethod
    def get_running_interval_secs(cls):
        return 0.2
    def check(self, **context):
        sick = pathlib.Path("hot").exists()
        return PreCheckResult(int(sick), "the fan stands still" if sick else "all fans turn")
    def failed_actions(self, **context):
        return [StopJob("call the technician")]
"""
UP_UNTIL_GO = """
import os, pathlib, sys, time
pathlib.Path(f"up-{sys.argv[1]}").write_text("1")
for _ in range(600):
    if pathlib.Path(f"go-{sys.argv[1]}").exists():
        break
    time.sleep(0.05)
"""


def checks(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = ran.report["checks"]
    return found


def test_a_check_that_fails_during_a_job_stops_that_job_alone_and_locks_nobody_out(holdfast: Holdfast) -> None:
    plugin, script = holdfast.script(FAN, "fan.py"), holdfast.script(UP_UNTIL_GO)
    fans = ("--checks", "fan", "--plugin", plugin, "--max-restarts", "0", "--grace", "2")
    one = holdfast.start("run", *fans, "--name", "one", script, "one")
    other = holdfast.start("run", "--no-checks", "--name", "other", script, "other")
    for name in ("one", "other"):
        wait_for(holdfast.dir / f"up-{name}")
    (holdfast.dir / "hot").write_text("1")
    failed = holdfast.finish(one)
    report = json.loads(holdfast("show", "one", "--json").out)
    assert (failed.status, report["phrase"], report["blame"]) == (252, "CheckFailed", "unknown")
    assert "check fan failed during the job" in report["reason"]
    assert "the fan stands still" in report["reason"]
    assert report["attempts"][0]["checks"]["state"] == "PASS", "before the start it had passed"
    (holdfast.dir / "go-other").write_text("1")
    assert holdfast.finish(other).status == 0
    (holdfast.dir / "go-one").write_text("1")
    assert holdfast("run", "--no-checks", script, "one").status == 0, "no later job is kept out"
    assert holdfast("run", *fans, script, "one").status == 252, "its own check looks anew"
    (holdfast.dir / "hot").unlink()
    assert holdfast("run", *fans, script, "one").status == 0
    assert json.loads(holdfast("devices", "--json").out)["devices"] == []


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ('StopJob("call the technician")', "the fan stands still; call the technician"),
        ('JobAbortionAction("HOT", "look at rack 9")', "the fan stands still; HOT: look at rack 9"),
        ('Retry(3), StopJob("call the technician")', "the fan stands still; call the technician"),
        ('Note("seen"), StopJob()', "the fan stands still"),
    ],
)
def test_a_check_during_a_job_that_asks_to_stop_it_is_obeyed(holdfast: Holdfast, actions: str, words: str) -> None:
    names = "JobAbortionAction, Note, PreCheckOperator, PreCheckResult, Retry, StopJob"
    text = FAN.replace("PreCheckOperator, PreCheckResult, StopJob", names)
    plugin = holdfast.script(text.replace('StopJob("call the technician")', actions), "fan.py")
    job = holdfast.start(
        *("run", "--checks", "fan", "--plugin", plugin, "--max-restarts", "3", "--grace", "2"),
        *("--same-failure", "off", holdfast.script(UP_UNTIL_GO), "one"),
    )
    wait_for(holdfast.dir / "up-one")
    (holdfast.dir / "hot").touch()
    ran = holdfast.finish(job)
    assert (ran.status, len(ran.report["attempts"])) == (252, 1)
    assert words in ran.report["reason"]
    assert ran.report["attempts"][0]["decision"]["reason"] == "the check asks to stop the job"


def test_what_an_earlier_release_kept_of_a_check_locks_nobody_out(holdfast: Holdfast) -> None:
    import socket

    told = holdfast(
        "faults", "report", "--device", socket.gethostname(), "--code", "CHECK-DISK", "--severity", "major"
    )  # fmt: skip
    assert told.status == 0, told.err
    script = holdfast.script("print('ran')\n")
    assert holdfast.run(script).status == 0
    assert holdfast("run", "--checks", "limits", script).status == 0


SLOW_CHECK = """
import pathlib, time
from holdfast.checks import PreCheckOperator, PreCheckResult

class Slow(PreCheckOperator):
    def check(self, **context):
        pathlib.Path("checking").write_text("1")
        while not pathlib.Path("enough").exists():
            time.sleep(0.02)
        return PreCheckResult(0, "it took its time")
    def failed_actions(self, **context):
        return []
"""


def test_a_round_is_seen_while_it_runs_and_afterwards(holdfast: Holdfast) -> None:
    plugin, script = holdfast.script(SLOW_CHECK, "slow.py"), holdfast.script("print('ran')\n")
    process = holdfast.start("run", "--checks", "limits,slow", "--plugin", plugin, "--name", "seen", script)
    wait_for(holdfast.dir / "checking")
    deadline = time.monotonic() + 60
    while True:
        shown = json.loads(holdfast("show", "seen", "--json").out)
        state = {check["name"]: check["state"] for check in shown["checks"]["checks"]}
        if state == {"limits": "passed", "slow": "running"} or time.monotonic() > deadline:
            break
    assert (shown["checks"]["state"], state) == ("CHECKING", {"limits": "passed", "slow": "running"})
    [row] = json.loads(holdfast("jobs", "--json").out)["jobs"]
    assert (row["state"], row["checks"]) == ("running", "CHECKING")
    assert "CHECKING: 1 of 2 checks passed" in holdfast("show", "seen").out
    (holdfast.dir / "enough").write_text("1")
    ran = holdfast.finish(process)
    assert (ran.status, checks(ran)["state"]) == (0, "PASS")
    assert {check["name"]: check["message"] for check in checks(ran)["checks"]}["slow"] == "it took its time"
    assert checks(ran) == ran.report["attempts"][0]["checks"]
    [row] = json.loads(holdfast("jobs", "--json").out)["jobs"]
    assert row["checks"] == "PASS"
    assert "PASS: 2 of 2 checks passed" in holdfast("show", "seen", "--verbose").out


def test_switched_off_is_a_state_and_a_failure_too(holdfast: Holdfast) -> None:
    plugin, script = holdfast.script(FAN, "fan.py"), holdfast.script("print('ran')\n")
    assert checks(holdfast.run(script))["state"] == "DISABLED"
    (holdfast.dir / "hot").write_text("1")
    ran = holdfast("run", "--checks", "fan", "--plugin", plugin, script)
    [fan] = checks(ran)["checks"]
    assert (ran.status, checks(ran)["state"], fan["state"], fan["tries"]) == (252, "FAIL", "failed", 1)
    assert ran.report["reason"].endswith("the fan stands still; call the technician"), "an abort keeps its words"
    assert "ran" not in ran.out


COUNTS = """
import pathlib
from holdfast.checks import PreCheckOperator, PreCheckResult

class Counts(PreCheckOperator):
    @classmethod
    def get_retry_interval_secs(cls):
        return 0.1
    {method}
    def check(self, **context):
        with pathlib.Path("tries").open("a") as file:
            file.write("x")
        return PreCheckResult(1, "never well")
    def failed_actions(self, **context):
        return []
"""


@pytest.mark.parametrize(
    ("method", "tries"),
    [
        ("@classmethod\n    def get_retry_times(cls): return 3", 3),
        ("@classmethod\n    def get_retry_limit_times(cls): return 2", 3),
        ("@classmethod\n    def get_retry_times(cls): return 0", 1),
    ],
)
def test_tries_are_counted_as_dlrover_counts_them(holdfast: Holdfast, method: str, tries: int) -> None:
    plugin = holdfast.script(COUNTS.format(method=method), "counts.py")
    ran = holdfast("run", "--checks", "counts", "--plugin", plugin, holdfast.script("print('ran')\n"))
    assert (ran.status, len(Path(holdfast.dir / "tries").read_text())) == (252, tries)
    assert checks(ran)["checks"][0]["tries"] == tries


def test_dlrovers_actions_take_their_own_arguments() -> None:
    event = EventAction("warn", "job", "pre_check", "slow network", {"node": "3"})
    assert (event.kind, event.reason, event.event_labels) == (None, "warn job pre_check slow network", {"node": "3"})
    again = NodeAction(node_id=3, node_type="worker", action_type="restart_worker", reason="hung")
    assert (again.kind, [str(node) for node in again.nodes]) == (ActionKind.RETRY, ["worker-3"])
    assert NodeAction(node_id=3, action_type="relaunch_worker").kind is ActionKind.REPLACE
    assert NodeAction(3, "FAILED", "broken").reason == "broken"
