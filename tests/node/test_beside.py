"""Hooks and daemons beside the workers of a real job on one machine: order, environment, logs, what a failure means."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast, Ran
from processes import until

pytestmark = pytest.mark.real

NOTES_ORDER = 'echo "$HOLDFAST_HOOK attempt $HOLDFAST_ATTEMPT rank [$RANK] $COLOUR" >> order'
ENDLESS = "while :; do sleep 0.1 & wait $!; done"


class BesideJobs:
    """Job files of one role, with what runs beside it."""

    def __init__(self, holdfast: Holdfast) -> None:
        self.holdfast = holdfast

    def write(self, worker: str, *, count: int = 1, hooks: list[dict[str, Any]] | None = None, **daemons: Any) -> Path:
        role = {"count": count, "command": ["bash", "-c", worker], "env": {"COLOUR": "blue"}}
        for hook in hooks or []:
            hook["command"] = ["bash", "-c", hook["command"]]
        for daemon in daemons.values():
            daemon["command"] = ["bash", "-c", daemon["command"]]
        job = {"name": "beside", "roles": {"worker": role}, "plugins": {"hooks": hooks or [], "daemons": daemons}}
        path = self.holdfast.dir / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def run(self, *words: str, worker: str = "true", **job: Any) -> Ran:
        path = self.write(worker, **job)
        return self.holdfast.run("--max-restarts", "0", *words, "--job", path)

    def start(self, worker: str, **job: Any) -> subprocess.Popen[str]:
        path = self.write(worker, **job)
        return self.holdfast.start("run", "--no-checks", "--max-restarts", "0", "--job", path)

    def log(self, name: str, attempt: int = 1) -> str:
        [path] = self.holdfast.home.glob(f"jobs/*/attempt-{attempt}/{name}.log")
        return path.read_text()

    def read(self, name: str) -> str:
        path = self.holdfast.dir / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def beside_jobs(holdfast: Holdfast) -> BesideJobs:
    return BesideJobs(holdfast)


def hook(when: str, name: str, command: str = NOTES_ORDER, **more: Any) -> dict[str, Any]:
    return {"when": when, "name": name, "command": command, **more}


# ---------------------------------------------------------------------------------------------- hooks


@pytest.mark.key
def test_hooks_run_in_order_before_the_workers_and_in_reverse_after_them(beside_jobs: BesideJobs) -> None:
    hooks = [hook("taskStarts", "a"), hook("taskSucceeds", "x"), hook("taskStarts", "b"), hook("always", "y")]
    hooks += [hook("taskFails", "never")]
    assert beside_jobs.run(worker='echo "worker $RANK" >> order', hooks=hooks).status == 0
    told = ["a attempt 1 rank [] blue", "b attempt 1 rank [] blue", "worker 0"]
    assert beside_jobs.read("order").splitlines() == [*told, "y attempt 1 rank [] blue", "x attempt 1 rank [] blue"]


def test_a_worker_starts_only_after_a_slow_hook(beside_jobs: BesideJobs) -> None:
    hooks = [hook("taskStarts", "slow", "sleep 0.5; echo there > data")]
    assert beside_jobs.run(worker="cat data", count=2, hooks=hooks).out.count("there") == 2


def test_both_streams_of_a_hook_are_in_its_log(beside_jobs: BesideJobs) -> None:
    assert beside_jobs.run(hooks=[hook("taskStarts", "loud", "echo one; echo two >&2")]).status == 0
    assert sorted(beside_jobs.log("hook-loud").splitlines()) == ["one", "two"]


def test_a_hook_before_that_fails_ends_the_attempt_before_any_worker_runs(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(
        worker="echo ran > ran", hooks=[hook("taskStarts", "fetch", "echo no such bucket >&2; exit 3")]
    )
    assert (ran.status, ran.report["phrase"], ran.report["blame"]) == (221, "HookFailed", "workload")
    assert ran.report["reason"] == "hook fetch (taskStarts) ended with exit status 3: no such bucket"
    assert ran.report["original"]["exit_code"] == 3
    assert any(item["text"] == "no such bucket" for item in ran.report["evidence"])
    assert str(ran.job_dir / "attempt-1/hook-fetch.log") in ran.report["solution"]
    assert beside_jobs.read("ran") == ""


def test_hooks_after_a_hook_that_failed_before_the_workers_know_its_phrase(beside_jobs: BesideJobs) -> None:
    hooks = [hook("taskStarts", "no", "exit 3"), hook("always", "end", "env"), hook("taskSucceeds", "never")]
    assert beside_jobs.run(hooks=hooks).status == 221
    log = beside_jobs.log("hook-end").splitlines()
    assert {"HOLDFAST_OUTCOME=failed", "HOLDFAST_PHRASE=HookFailed", "HOLDFAST_EXIT_CODE=221"} <= set(log)
    assert beside_jobs.read("order") == ""


def test_a_hook_whose_failure_is_ignored_costs_one_line(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(hooks=[hook("taskStarts", "maybe", "exit 4", on_failure="ignore")])
    assert ran.status == 0
    said = "hook maybe (taskStarts) ended with exit status 4; the job goes on without it (on_failure: ignore)"
    assert ran.err.count(said) == 1


def test_a_hook_has_a_time_limit(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(hooks=[hook("taskStarts", "slow", "trap '' TERM; " + ENDLESS, limit=0.5)])
    # Its shell may have time to write "Killed" of the command that it ran.
    assert ran.report["reason"].startswith("hook slow (taskStarts) did not end within 0.5 s and was killed")
    assert ran.report["phrase"] == "HookFailed"


def test_a_hook_that_cannot_be_run_says_why(beside_jobs: BesideJobs, holdfast: Holdfast) -> None:
    path = beside_jobs.write("true", hooks=[hook("taskStarts", "gone")])
    path.write_text(path.read_text().replace('["bash", "-c", ' + json.dumps(NOTES_ORDER) + "]", '["./not-there"]'))
    ran = holdfast.run("--max-restarts", "0", "--job", path)
    assert ran.status == 221
    assert "could not be started: exec ./not-there: No such file or directory (status 127)" in ran.report["reason"]


def test_a_hook_after_that_fails_fails_an_attempt_that_had_succeeded(beside_jobs: BesideJobs) -> None:
    hooks = [hook("taskSucceeds", "upload", "echo quota >&2; exit 5"), hook("always", "tidy", "echo tidied")]
    ran = beside_jobs.run(hooks=hooks)
    assert (ran.status, ran.report["phrase"]) == (221, "HookFailed")
    assert ran.report["reason"] == "hook upload (taskSucceeds) ended with exit status 5: quota"
    assert beside_jobs.log("hook-tidy") == "tidied\n"


def test_a_hook_after_that_fails_takes_no_attempt_s_own_cause(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(worker="./no-such-program", hooks=[hook("taskFails", "mail", "exit 5")])
    assert ran.report["phrase"] == "CommandNotFound"
    assert ran.err.count("attempt 1: hook mail (taskFails) ended with exit status 5") == 1


def test_each_attempt_has_its_own_hooks(beside_jobs: BesideJobs) -> None:
    hooks = [hook("taskStarts", "a"), hook("taskFails", "b"), hook("taskSucceeds", "c")]
    ran = beside_jobs.holdfast.run(
        "--max-restarts", "1", "--job", beside_jobs.write("exit $((2 - HOLDFAST_ATTEMPT))", hooks=hooks)
    )
    assert ran.status == 0
    told = [line[:11] for line in beside_jobs.read("order").splitlines()]
    assert told == ["a attempt 1", "b attempt 1", "a attempt 2", "c attempt 2"]


def test_a_hook_concerns_the_roles_that_it_names(beside_jobs: BesideJobs, holdfast: Holdfast) -> None:
    path = beside_jobs.write(
        "true", hooks=[hook("taskStarts", "w", roles=["worker"]), hook("taskStarts", "p", roles=["ps"])]
    )
    job = json.loads(path.read_text())
    job["roles"]["ps"] = {"count": 1, "command": ["true"], "env": {"COLOUR": "red"}}
    path.write_text(json.dumps(job))
    assert holdfast.run("--job", path).status == 0
    assert [line[-4:] for line in beside_jobs.read("order").splitlines()] == ["blue", " red"]


@pytest.mark.parametrize("when", ["taskStarts", "taskSucceeds"])
def test_a_stop_ends_a_hook_and_none_begins_after_it(beside_jobs: BesideJobs, when: str) -> None:
    hooks = [hook("taskSucceeds", "next", "echo next > next"), hook(when, "long", "echo up > up; " + ENDLESS)]
    process = beside_jobs.start("true", hooks=hooks)
    until(lambda: beside_jobs.read("up"))
    process.send_signal(signal.SIGINT)
    ran = beside_jobs.holdfast.finish(process)
    assert "StoppedByOperator" in ran.err if when == "taskStarts" else ran.status == 0
    assert beside_jobs.read("next") == ""
    assert beside_jobs.holdfast.survivors() == []


def test_what_a_hook_has_left_behind_does_not_hold_a_finished_job(beside_jobs: BesideJobs) -> None:
    hooks = [hook("taskStarts", "forks", "setsid sleep 600 & "), hook("always", "too", "setsid sleep 600 & ")]
    assert beside_jobs.run(hooks=hooks).status == 0
    assert beside_jobs.holdfast.survivors() == []


def test_no_word_of_a_hook_tells_a_secret(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(hooks=[hook("taskStarts", "leak", "echo pass''word=hun''ter2hunter2; exit 1")])
    assert "hunter2" in beside_jobs.log("hook-leak")
    assert "hunter2" not in ran.err
    files = [path for path in ran.job_dir.rglob("*") if path.is_file() and path.name != "hook-leak.log"]
    assert [path.name for path in files if b"hunter2" in path.read_bytes()] == []


# ---------------------------------------------------------------------------------------------- daemons


@pytest.mark.key
def test_a_daemon_runs_before_the_first_worker_and_leaves_after_the_last(beside_jobs: BesideJobs) -> None:
    daemon = {"command": f"trap 'echo bye >> story; exit 0' TERM; echo up >> story; {ENDLESS}"}
    worker = "while ! grep -q up story; do sleep 0.05; done; sleep 0.3; echo worker >> story"
    assert beside_jobs.run(worker=worker, d=daemon).status == 0
    assert beside_jobs.read("story").split() == ["up", "worker", "bye"]
    assert beside_jobs.log("daemon-d") == ""
    assert beside_jobs.holdfast.survivors() == []


def test_a_daemon_that_ends_is_started_again_within_limits(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(
        worker="while [ $(wc -l < starts) -lt 3 ]; do sleep 0.05; done; sleep 0.5",
        d={"command": "echo again >> starts; echo no config >&2; exit 9", "restarts": 2},
        hooks=[hook("taskStarts", "made", "touch starts")],
    )
    assert ran.status == 0
    assert len(beside_jobs.read("starts").split()) == 3
    said = "daemon d ended with exit status 9; it was started 3 times: no config; the job goes on without it"
    assert ran.err.count(said) == 1


def test_a_required_daemon_that_is_gone_for_good_fails_the_attempt(beside_jobs: BesideJobs) -> None:
    daemon = {"command": "sleep 0.5; echo no licence; exit 9", "restarts": 0, "required": True}
    ran = beside_jobs.run(worker="sleep 60", d=daemon)
    assert (ran.status, ran.report["phrase"]) == (222, "DaemonFailed")
    assert ran.report["reason"] == "daemon d ended with exit status 9: no licence"
    assert ran.report["original"]["exit_code"] == 9


def test_a_required_daemon_that_cannot_be_run_fails_the_start(beside_jobs: BesideJobs) -> None:
    path = beside_jobs.write("echo ran > ran", d={"command": "x", "required": True})
    path.write_text(path.read_text().replace('["bash", "-c", "x"]', '["./not-there"]'))
    ran = beside_jobs.holdfast.run("--max-restarts", "0", "--job", path)
    assert (ran.status, ran.report["phrase"]) == (222, "DaemonFailed")
    assert beside_jobs.read("ran") == ""


def test_a_daemon_that_ignores_every_request_is_killed(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(worker="sleep 0.3", d={"command": f"trap '' TERM INT; setsid sleep 600 & {ENDLESS}"})
    assert ran.status == 0
    assert beside_jobs.holdfast.survivors() == []


def test_a_background_child_of_a_worker_holds_no_finished_job_with_a_daemon(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(worker="setsid sleep 600 & echo done", d={"command": ENDLESS})
    assert ran.status == 0
    assert beside_jobs.holdfast.survivors() == []


@pytest.mark.key
def test_a_supervisor_that_is_killed_leaves_no_daemon(beside_jobs: BesideJobs) -> None:
    process = beside_jobs.start("echo up > up; sleep 600", d={"command": ENDLESS})
    until(lambda: beside_jobs.read("up"))
    guard = process.pid
    [supervisor] = [int(pid) for pid in Path(f"/proc/{guard}/task/{guard}/children").read_text().split()]
    os.kill(supervisor, signal.SIGKILL)
    beside_jobs.holdfast.finish(process)
    assert beside_jobs.holdfast.survivors() == []


def test_daemons_and_hooks_have_the_directory_and_the_paths_of_the_logs(beside_jobs: BesideJobs) -> None:
    ran = beside_jobs.run(
        worker="sleep 0.3", d={"command": f"pwd > where; echo $HOLDFAST_ATTEMPT_LOGS >> where; {ENDLESS}"}
    )
    assert beside_jobs.read("where").split() == [str(beside_jobs.holdfast.dir), str(ran.job_dir / "attempt-1")]
