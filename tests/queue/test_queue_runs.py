"""Jobs in this machine's queue: submitted, started in turn, stopped, and kept through a core's death."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import stat
from pathlib import Path

import pytest
from queue_home import QueueHome, queue

from processes import is_gone, until

__all__ = ["queue"]

pytestmark = pytest.mark.real


def test_a_submitted_job_gets_devices_runs_and_is_remembered(queue: QueueHome) -> None:
    done = queue(
        "submit", "--platform", "local", "--devices", "2", "--", "--no-checks", "--nproc-per-node", "2", "held.py"
    )
    assert done.status == 0 and "is in this machine's queue" in done.out
    [job] = queue.rows()
    queue.until((job,), "running")
    row = queue.rows()[job]
    assert (row["name"], row["priority"], row["devices"]) == ("held", "normal", ["pretend0", "pretend1"])
    assert row["needs"]["devices"] == 2 and row["why"] == "" and row["starts_at"] is None
    queue.go()
    queue.until((job,), "over")
    assert "devices 0,1" in queue("logs", job).out
    known = queue.jobs()[job]
    assert (known["outcome"], known["platform"]["platform"], known["platform"]["id"]) == ("succeeded", "local", job)
    assert queue.status()["running"] == 0


def test_no_device_is_given_twice_and_each_waiting_job_has_its_reason(queue: QueueHome) -> None:
    first, second = queue.held(3, "a", "--time", "1h"), queue.held(2, "b", "--time", "1h")
    third = queue.held(1, "c", "--time", "10m")
    queue.until((first, second, third), "running", "queued", "running")
    rows = queue.rows()
    given = [*rows[first]["devices"], *rows[third]["devices"]]
    assert len(given) == len(set(given)) == 4, "a job that ends before the reservation may pass"
    assert "needs 2 devices" in rows[second]["why"] and first in rows[second]["why"]
    assert rows[second]["starts_at"] == pytest.approx(rows[first]["ends_at"])
    shown = queue("show", second).out
    assert "QUEUED" in shown and "needs 2 devices" in shown and "when its turn comes" in shown
    assert "needs 2 devices" in queue("queue", "--explain", second[-4:]).out
    queue.go("a")
    queue.until((first, second), "over", "running")
    queue.go("b")
    queue.go("c")
    queue.until((second, third), "over", "over")


def test_a_higher_class_goes_first_and_a_class_can_be_changed(queue: QueueHome) -> None:
    running = queue.held(4, "a")
    low, high = queue.held(4, "b", "--priority", "low"), queue.held(4, "c", "--priority", "high")
    queue.until((running, low, high), "running", "queued", "queued")
    assert queue("priority", low, "urgent").out == f"job {low} (held): priority urgent, it was low\n"
    wrong = queue("priority", low, "quick")
    assert wrong.status == 2 and "expected one of low, normal, high, urgent" in wrong.err
    queue.go("a")
    queue.until((running, low, high), "over", "running", "queued")


def test_a_killed_core_is_back_and_touches_no_job(queue: QueueHome) -> None:
    first, second = queue.held(4, "a"), queue.held(4, "b")
    queue.until((first, second), "running", "queued")
    began = queue.rows()[first]["started_at"]
    for _ in range(5):
        queue.kill_core_and_wait()
    rows = queue.rows()
    assert (rows[first]["state"], rows[second]["state"]) == ("running", "queued")
    assert rows[first]["started_at"] == began
    queue.go("a")
    queue.until((first, second), "over", "running")
    assert queue.jobs()[first]["outcome"] == "succeeded" and queue.jobs()[first]["attempts"] == 1


def test_a_core_whose_keeper_was_killed_becomes_the_keeper(queue: QueueHome) -> None:
    job = queue.held(1, "a")
    queue.until((job,), "running")
    core = int(queue.status()["pid"])
    keeper = int(Path(f"/proc/{core}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    until(lambda: queue.status()["pid"] not in (None, core), "the core has a keeper again")
    assert queue.states(job) == ["running"]
    queue.kill_core_and_wait()
    queue.go("a")
    queue.until((job,), "over")
    assert queue.jobs()[job]["outcome"] == "succeeded"


def test_without_any_core_jobs_go_on_and_the_next_command_finds_them(queue: QueueHome) -> None:
    first, second = queue.held(4, "a"), queue.held(4, "b")
    queue.until((first, second), "running", "queued")
    pid = int(queue.status()["pid"])
    assert "no job with it: 1 running job, 1 waiting job" in queue("core", "stop").out
    assert is_gone(pid)
    assert queue.status() == {"pid": None, "since": None, "running": 1, "waiting": 1}
    assert "there is nothing to end" in queue("core", "stop").out
    queue.go("a")
    until(lambda: "ended" in queue.jobs()[first] and queue.jobs()[first]["outcome"], "it ends by itself")
    queue.until((first, second), "over", "running")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--devices", "9", "--", "held.py"], "the job needs 9 devices, and this machine has 4"),
        (["--", "held.py"], "this machine has 4 devices: say how many the job needs with --devices N"),
        (["--devices", "-1", "--", "held.py"], "expected a number from 0"),
        (
            ["--devices", "1", "--time", "90", "--", "held.py"],
            "a bare number means minutes to Slurm and seconds to holdfast",
        ),
        (["--devices", "1", "--priority", "now", "--", "held.py"], "expected one of low, normal, high, urgent"),
        (["--devices", "3", "--", "--nproc-per-node", "2", "held.py"], "expected a multiple of 2"),
        (["--devices", "1", "--", "--nnodes", "2", "held.py"], "runs jobs on one machine"),
        (["--devices", "1", "--on", "pretend7", "--", "held.py"], "pretend7"),
        (["--devices", "1", "--", "hold.py"], "held.py"),
        (["--devices", "1", "--"], "expected a job file, or `--`"),
        (["held.py"], "expected `--` before it"),
        (["--devices", "1", "--", "--python", "/nowhere/python", "held.py"], "/nowhere/python"),
    ],
)
def test_what_can_never_start_is_refused_at_once(queue: QueueHome, words: list[str], said: str) -> None:
    message = queue.submit(*words, status=2)
    assert said in message and "try: " in message
    assert queue.rows() == {} and queue.jobs() == {}


def test_a_waiting_job_is_stopped_with_a_report(queue: QueueHome) -> None:
    first, second = queue.held(4, "a"), queue.held(4, "b")
    queue.until((first, second), "running", "queued")
    assert "is taken out of the queue" in queue("stop", second, "--reason", "enough").out
    assert queue.states(second) == ["over"]
    shown = queue("show", second).out
    assert "STOPPED: enough (asked by" in shown and "It had not" in shown and "StoppedByOperator" in shown
    assert "is over already" in queue("stop", second, "--reason", "again").out
    assert "SIGTERM" in queue("stop", first, "--reason", "enough").out
    queue.until((first,), "over")
    assert queue.jobs()[first]["phrase"] == "StoppedByOperator"


def test_submit_can_wait_for_the_end_and_has_its_status(queue: QueueHome) -> None:
    queue.holdfast.script("import sys; sys.exit(7)", "fails.py")
    words = [
        "submit",
        "--platform",
        "local",
        "--devices",
        "0",
        "--wait",
        "--",
        "--no-checks",
        "--max-restarts",
        "0",
        "fails.py",
    ]
    done = queue(*words)
    [job] = queue.jobs()
    assert done.status == queue.jobs()[job]["code"] != 0
    assert (
        queue(
            "submit", "--platform", "local", "--devices", "0", "--wait", "--", "--no-checks", "held.py", "held.py"
        ).status
        == 0
    )


def test_a_job_runs_as_it_would_have_been_typed(queue: QueueHome) -> None:
    queue.holdfast.script(
        """
        import os, resource
        names = ("MINE", "RANK_OF_MINE", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "SSH_AUTH_SOCK")
        print({name: os.environ.get(name) for name in names})
        mask = os.umask(0)
        print(oct(mask), os.getcwd(), resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 64)
        """,
        "tells.py",
    )
    queue.holdfast.env |= {"MINE": "x y", "SSH_AUTH_SOCK": "/tmp/agent", "CUDA_VISIBLE_DEVICES": "5", "PET_NNODES": "1"}
    before = os.umask(0o027)
    try:
        done = queue("submit", "--platform", "local", "--devices", "0", "--wait", "--", "--no-checks", "tells.py")
    finally:
        os.umask(before)
    assert done.status == 0 and "CUDA_VISIBLE_DEVICES=5 is not passed to the job" in done.err
    [job] = queue.jobs()
    out = queue("logs", job).out
    assert "'MINE': 'x y'" in out and "'SLURM_JOB_ID': None" in out and "'SSH_AUTH_SOCK': None" in out
    assert "'CUDA_VISIBLE_DEVICES': None" in out and f"0o27 {queue.dir} True" in out


def test_the_environment_of_a_job_is_private_and_goes_with_its_end(queue: QueueHome) -> None:
    queue.holdfast.env["MY_TOKEN"] = "s3cret-value-of-mine"
    job = queue.held(1, "a")
    queue.until((job,), "running")
    directory = queue.holdfast.home / "jobs" / job
    submission = directory / "submission.json"
    assert stat.S_IMODE(submission.stat().st_mode) == 0o600
    assert "s3cret" in submission.read_text()
    queue.go("a")
    queue.until((job,), "over")
    assert not submission.exists()
    for path in queue.holdfast.home.rglob("*"):
        assert not path.is_file() or b"s3cret-value" not in path.read_bytes(), path


def test_a_job_file_needs_what_its_roles_say_and_a_later_edit_changes_nothing(queue: QueueHome) -> None:
    (queue.dir / "job.yaml").write_text(
        "name: two\nroles:\n  worker: {count: 2, command: [python, held.py, b], resources: {devices: 1}}\n"
        "local: {priority: high, time: 10m}\n"
    )
    holds = queue.held(4, "a")
    job = queue.submit("job.yaml")
    queue.until((holds, job), "running", "queued")
    row = queue.rows()[job]
    assert (row["name"], row["needs"]["devices"], row["priority"]) == ("two", 2, "high")
    assert "which counts here" in queue.submit("--devices", "1", "job.yaml", status=2)
    (queue.dir / "job.yaml").write_text("name: other\n")
    queue.go("a")
    queue.until((job,), "running")
    assert queue.rows()[job]["devices"] == ["pretend0", "pretend1"]
    assert queue.rows()[job]["ends_at"] == pytest.approx(queue.rows()[job]["started_at"] + 600)
    queue.go("b")
    queue.until((job,), "over")
    assert queue.jobs()[job]["outcome"] == "succeeded"


def test_a_time_limit_ends_a_job(queue: QueueHome) -> None:
    job = queue.held(1, "a", "--time", "1s")
    until(lambda: queue.states(job) == ["over"], "its time is over")
    assert queue.jobs()[job]["phrase"] == "TimeLimitReached"


def test_a_command_that_has_gone_by_its_turn_is_a_report(queue: QueueHome) -> None:
    (elsewhere := queue.dir / "elsewhere").mkdir()
    (elsewhere / "held.py").write_text(queue.script.read_text())
    holds = queue.held(4, "a")
    queue.holdfast.dir = elsewhere
    job = queue.held(1, "b")
    queue.holdfast.dir = queue.dir
    queue.until((holds, job), "running", "queued")
    (elsewhere / "held.py").unlink()
    elsewhere.rmdir()
    queue.go("a")
    queue.until((holds, job), "over", "over")
    known = queue.jobs()[job]
    assert (known["outcome"], known["phrase"]) == ("failed", "CommandNotFound")
    assert f"{elsewhere}: No such file or directory" in " ".join(queue("show", job).out.split())


def test_submissions_at_the_same_time_meet_one_core(queue: QueueHome) -> None:
    words = ["submit", "--platform", "local", "--json", "--devices", "1", "--", "--no-checks", "held.py", "a"]
    started = [queue.holdfast.start(*words) for _ in range(6)]
    ran = [queue.holdfast.finish(each) for each in started]
    assert [each.status for each in ran] == [0] * 6, [each.err for each in ran]
    jobs = [json.loads(each.out)["id"] for each in ran]
    until(lambda: sorted(queue.states(*jobs)) == ["queued"] * 2 + ["running"] * 4, "four have a device")
    log = next(queue.holdfast.home.glob("core/*/core.log")).read_text()
    assert log.count(" runs\n") == 1, log


def test_a_core_without_work_ends_and_one_whose_home_is_gone_too(queue: QueueHome) -> None:
    job = queue.held(1, "held.py")
    queue.until((job,), "over")
    pid = int(queue.status()["pid"])
    assert is_gone(pid)
    assert queue.status()["pid"] is None


def test_kills_of_core_and_keeper_at_any_moment_lose_no_job_and_start_none_twice(queue: QueueHome) -> None:
    queue.holdfast.script(
        """
        import fcntl, os, sys, time
        for number in os.environ["HOLDFAST_DEVICES"].split(","):
            fd = os.open(f"device-{number}.lock", os.O_CREAT | os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another job must not have the device
        with open("starts", "a") as file:
            file.write(os.environ["HOLDFAST_JOB"] + "\\n")
        time.sleep(float(sys.argv[1]))
        """,
        "locks.py",
    )
    seeded = random.Random(7)
    words = ["--", "--no-checks", "--max-restarts", "0", "locks.py"]

    def kill() -> None:
        cores = [int(line.split()[0]) for line in queue.holdfast.survivors() if "core serve" in line]
        for pid in cores[:: seeded.choice([1, -1])][:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    jobs = []
    for _ in range(8):
        jobs.append(queue.submit("--devices", str(seeded.randint(1, 3)), *words, str(round(seeded.uniform(0, 0.5), 2))))
        kill()

    def over() -> bool:
        kill()
        return not queue.rows()

    until(over, "all jobs have ended")
    assert sorted((queue.dir / "starts").read_text().split()) == sorted(jobs)
    assert {queue.jobs()[job]["outcome"] for job in jobs} == {"succeeded"}


def test_a_queued_run_shows_its_output_and_has_its_status(queue: QueueHome) -> None:
    queue.holdfast.script("import sys; print('hello', sys.argv[1:]); sys.exit(3)", "says.py")
    run = ["run", "--queue", "--devices", "1", "--no-checks", "--max-restarts", "0"]
    done = queue(*run, "says.py", "--queue", "--devices", "9")
    assert "[worker-0] hello ['--queue', '--devices', '9']" in done.out
    [job] = queue.jobs()
    assert done.status == queue.jobs()[job]["code"] != 0
    assert "waits for its turn" in done.err and "FAILED" in done.out
    wrong = queue("run", "--queue", "--no-checks", "says.py")
    assert wrong.status == 2 and "say how many the job needs" in wrong.err
    missing = queue("run", "--queue", "--devices")
    assert missing.status == 2 and "expected N behind it" in missing.err


@pytest.mark.parametrize("waits", [True, False])
def test_a_signal_ends_a_queued_run(queue: QueueHome, waits: bool) -> None:
    if waits:
        first = queue.held(4, "a")
        queue.until((first,), "running")
    run = queue.holdfast.start("run", "--queue", "--devices", "4", "--no-checks", "held.py", "b")
    until(lambda: [row["state"] for row in queue.rows().values()][-1:] == ["queued" if waits else "running"])
    job = list(queue.rows())[-1]
    if not waits:
        until(lambda: "devices 0,1,2,3" in queue("logs", job).out)
    run.send_signal(signal.SIGINT)
    done = queue.holdfast.finish(run)
    assert done.status == 250
    assert queue.jobs()[job]["phrase"] == "StoppedByOperator"
    assert "SIGINT to `holdfast run --queue`" in " ".join(queue("show", job).out.split())


def test_logs_follow_a_job_from_before_its_turn_to_its_end(queue: QueueHome) -> None:
    first, second = queue.held(4, "a"), queue.held(4, "b")
    queue.until((first, second), "running", "queued")
    assert f"job {second} has written no logs yet" in queue("logs", second).err
    follows = queue.holdfast.start("logs", second, "--follow")
    assert follows.stderr is not None and "waits for its turn" in follows.stderr.readline()
    queue.go("a")
    queue.until((first, second), "over", "running")
    queue.go("b")
    done = queue.holdfast.finish(follows)
    assert done.status == 0 and "devices 0,1,2,3" in done.out
    assert "LOCAL" not in queue("jobs").out, "the queue has no other ids"
