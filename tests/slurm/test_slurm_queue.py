"""Jobs in a real Slurm's queue: shown with Slurm's reason, stopped from the login node, told when they never began."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from real_slurm import Slurm, SlurmOf

from holdfast.model.job_spec import PlatformJob
from holdfast.record import database
from holdfast.record.submitted_jobs import SubmissionRecord, write_submission

HELD = """\
name: held
roles:
  worker: {count: 1, command: [sh, -c, "echo begun; while [ ! -e go ]; do sleep 0.1; done; exit ${STATUS:-0}"]}
checks: []
grace: 2
slurm: {cpus: 4}
"""


def _stopped(slurm: Slurm, job: str, reason: str) -> None:
    """Stop a job that runs. It may end before its owner's answer arrives."""
    said, _ = _said(slurm, "stop", job, "--reason", reason)
    assert "its workers get SIGTERM now" in said or "it has been stopped" in said


def _submit(slurm: Slurm, *words: str, text: str = HELD) -> str:
    (slurm.home / "job.yaml").write_text(text)
    done = slurm.holdfast("submit", "--json", "job.yaml", *words)
    assert done.wait() == 0, done.err
    number = str(json.loads(done.out)["platform"]["id"])
    slurm.jobs.append(int(number))
    return number


def _said(slurm: Slurm, *words: str, status: int = 0) -> tuple[str, str]:
    done = slurm.holdfast(*words)
    assert done.wait() == status, (done.out, done.err)
    return done.out, done.err


def _listed(slurm: Slurm) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_said(slurm, "jobs", "--json")[0])
    return found


def _running(slurm: Slurm, *numbers: str) -> None:
    slurm.wait(
        lambda: all("begun" in slurm.output(number) for number in numbers), f"jobs {', '.join(numbers)} have begun"
    )


def test_a_job_that_waits_is_shown_with_slurms_reason_and_stop_takes_it_out(slurm: Slurm) -> None:
    running = [_submit(slurm, "--name", f"job{index}") for index in range(3)]
    _running(slurm, *running)
    waits = _submit(slurm, "--name", "late")
    [row] = _listed(slurm)["queued"]
    assert (row["platform"]["id"], row["name"], row["state"]) == (waits, "late", "pending")
    assert row["reason"] in ("Resources", "Priority", "")
    out, _ = _said(slurm, "jobs")
    assert [line.split()[:3] for line in out.splitlines()[1:2]] == [["-", waits, "late"]]
    assert f"Slurm job {waits} (late) PENDING" in _said(slurm, "show", waits)[0]
    assert "there are none before it begins" in _said(slurm, "logs", "late")[1]
    assert "cancelled before it began" in _said(slurm, "stop", waits, "--reason", "no more")[0]
    assert slurm.ended(int(waits))["JobState"] == "CANCELLED"
    assert _listed(slurm)["queued"] == []

    # From the login node, whose machine is another one than the job's.
    _stopped(slurm, running[0], "enough of it")
    assert slurm.ended(int(running[0]))["ExitCode"] == "250:0"
    assert "enough of it" in _said(slurm, "show", running[0])[0]
    (slurm.home / "go").touch()
    for number in running[1:]:
        assert slurm.ended(int(number))["ExitCode"] == "0:0"


def test_the_logs_of_a_job_that_waits_are_followed_from_its_beginning(slurm: Slurm) -> None:
    slurm.wait_state(slurm.sbatch("while [ ! -e go ]; do sleep 0.1; done", "-N3", "--exclusive"), "RUNNING")
    waits = _submit(slurm, "--name", "late")
    follows = slurm.holdfast("logs", "--follow", waits)
    slurm.wait(lambda: "there are none before it begins" in follows.err, "it says that the job waits")
    (slurm.home / "go").touch()
    assert follows.wait() == 0, follows.err
    assert follows.out.endswith("begun\n")
    assert "late" in follows.err


def test_the_wait_for_logs_ends_with_the_job_that_never_begins(slurm: Slurm) -> None:
    slurm.wait_state(slurm.sbatch("while [ ! -e go ]; do sleep 0.1; done", "-N3", "--exclusive"), "RUNNING")
    waits = _submit(slurm, "--name", "late")
    follows = slurm.holdfast("logs", "--follow", waits)
    slurm.wait(lambda: "there are none before it begins" in follows.err, "it says that the job waits")
    slurm("scancel", waits)
    assert follows.wait() == 2
    assert "holdfast has never begun in it" in follows.err


OLD = """#!/bin/sh
/usr/bin/squeue "$@" | if [ -e {mark} ]; then cat; else touch {mark}; sed "s/RUNNING/PENDING/"; fi
"""


def test_a_job_that_begins_while_it_is_taken_out_of_the_queue_is_cancelled(slurm: Slurm) -> None:
    """The first look at the queue is older than the job's beginning."""
    old = slurm.home / "old"
    old.mkdir()
    (old / "squeue").write_text(OLD.format(mark=old / "mark"))
    (old / "squeue").chmod(0o755)
    number = str(slurm.sbatch("sleep 600"))
    slurm.wait_state(number, "RUNNING")
    write_submission(
        slurm.state, SubmissionRecord(platform=PlatformJob(platform="slurm", id=number), name="early", at=time.time())
    )
    asked = slurm.holdfast("stop", number, "--reason", "enough", env={"PATH": f"{old}:{os.environ['PATH']}"})
    assert asked.wait() == 0, asked.err
    assert "cancelled while it began" in asked.out
    slurm.ended(number)


def test_a_job_over_nodes_is_shown_followed_and_stopped_from_the_login_node(slurm: Slurm) -> None:
    text = HELD.replace("count: 1", "count: 2").replace("{cpus: 4}", "{nodes: 2, cpus: 1}")
    number = _submit(slurm, text=text)
    slurm.wait(lambda: slurm.output(number).count("begun") == 2, "both ranks have begun")
    out, err = _said(slurm, "show", number)
    assert "(held) RUNNING since" in out and err == ""
    follows = slurm.holdfast("logs", number, "--rank", "1", "--stdout", "-f")
    slurm.wait(lambda: "begun" in follows.out, "the rank's log is followed")
    _stopped(slurm, number, "seen enough")
    assert slurm.ended(int(number))["ExitCode"] == "250:0"
    assert follows.wait() == 0, follows.err
    assert "seen enough" in _said(slurm, "show", number)[0]


def test_a_whole_array_is_stopped_by_its_id(slurm: Slurm) -> None:
    array = _submit(slurm, "--array", "0-5%2")
    _running(slurm, f"{array}_0", f"{array}_1")
    queued = {row["platform"]["id"] for row in _listed(slurm)["queued"]}
    assert queued == {f"{array}_{index}" for index in range(2, 6)}
    assert f"4 jobs of the array {array}" in _said(slurm, "stop", array, "--reason", "enough")[0]
    slurm.wait(lambda: not slurm("squeue", "-h").strip(), "all are over")
    found = _listed(slurm)
    assert {job["phrase"] for job in found["jobs"]} == {"StoppedByOperator"}
    assert len(found["jobs"]) == 2 and found["queued"] == []


def test_a_job_that_never_began_is_told_once(slurm: Slurm) -> None:
    number = _submit(slurm, "--python", "/nowhere/python")
    assert slurm.ended(int(number))["JobState"] == "FAILED"
    _, err = _said(slurm, "jobs")
    assert f"job {number} (held) is in Slurm's queue no more, and holdfast has never begun in it" in err
    assert f"cat slurm-{number}.out" in err
    assert _said(slurm, "jobs") == (f"no job has run yet with its state in {slurm.state}\n", "")


def test_sbatch_reads_a_text_as_it_was_written(slurm: Slurm) -> None:
    for text in (
        "a b # c", "it's \"x\" \\ y", "$HOME `id` $(id)", "--wrap=id", "x : --hold", "é ☃", "#SBATCH --wrap=id", "\\",
    ):  # fmt: skip
        number = _submit(slurm, "--comment", text, "--sbatch", "hold")
        assert f"Comment={text} " in slurm("scontrol", "show", "job", number)
        slurm("scancel", number)


def test_what_slurm_refuses_is_quoted_with_what_to_change(slurm: Slurm) -> None:
    (slurm.home / "job.yaml").write_text(HELD)
    for words, status, said in (
        (["--partition", "mian"], 2, "did you mean `main`? (sbatch: invalid partition specified: mian"),
        (["--constraint", "a100"], 2, "--constraint: the job was not submitted: no node has this feature"),
        (["--sbatch", "partiton=main"], 2, "sbatch has no option --partiton; did you mean `partition`?"),
        (["--nodes", "9"], 0, "will not start as it is: Part"),
    ):
        assert said in _said(slurm, "submit", "job.yaml", *words, status=status)[1]
    assert not [job for job in _listed(slurm)["queued"] if job["state"] != "pending"]
    slurm.ctld_kill()
    _, err = _said(slurm, "submit", "job.yaml", status=1)
    assert "slurmctld does not answer (sbatch: Batch job submission failed: Unable to contact" in err
    out, err = _said(slurm, "jobs")
    assert "queued" in out and "what waits in the queue is not known: slurmctld" in err
    slurm.ctld_start()


def test_wait_ends_with_the_jobs_own_status_and_a_later_edit_changes_nothing(slurm: Slurm) -> None:
    (slurm.home / "job.yaml").write_text(HELD.replace("exit ${STATUS:-0}", "exit 210"))
    waits = slurm.holdfast("submit", "--wait", "job.yaml", "--max-restarts", "0")
    slurm.wait(lambda: "submitted held as Slurm job" in waits.out, "the id is told before the end")
    number = waits.out.split()[5]
    slurm.jobs.append(int(number))
    _running(slurm, number)
    (slurm.home / "job.yaml").write_text("name: other\n")
    (slurm.home / "go").touch()
    assert waits.wait() == 210, waits.err
    assert slurm.ended(int(number))["ExitCode"] == "210:0"


def test_the_same_text_runs_again_after_a_requeue(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=30)
    number = _submit(slurm)
    _running(slurm, number)
    (slurm.home / "job.yaml").unlink()
    slurm("scontrol", "requeue", number)
    slurm.wait(
        lambda: slurm.job(number)["Restarts"] == "1" and slurm.output(number).count("begun") == 2, "it runs again"
    )
    (slurm.home / "go").touch()
    assert slurm.ended(int(number))["ExitCode"] == "0:0"


def test_a_job_that_waits_to_be_started_again_is_queued_and_not_lost(slurm_of: SlurmOf) -> None:
    # A busy machine's slurmctld needs more than a third of two seconds to say why the job got SIGTERM.
    slurm = slurm_of(kill_wait_s=30)
    number = _submit(slurm)
    _running(slurm, number)
    slurm("scontrol", "requeuehold", number)
    slurm.wait(lambda: slurm.job(number)["JobState"] in ("PENDING", "REQUEUE_HOLD"), "it waits again")
    [job] = _listed(slurm)["jobs"]
    assert (job["state"], job["outcome"], job["platform"]["id"]) == ("queued", None, number)
    assert job["queued"] and "QUEUED since" in _said(slurm, "show", number)[0]
    assert "is taken out of the queue" in _said(slurm, "stop", number, "--reason", "not today")[0]
    assert slurm.ended(int(number))["JobState"] == "CANCELLED"
    [job] = _listed(slurm)["jobs"]
    assert (job["state"], job["outcome"], job["code"]) == ("ended", "stopped", 250)
    assert "not today" in _said(slurm, "show", number)[0]


def test_a_job_that_was_cancelled_while_it_waited_is_closed(slurm_of: SlurmOf) -> None:
    # A busy machine's slurmctld needs more than a third of two seconds to say why the job got SIGTERM.
    slurm = slurm_of(kill_wait_s=30)
    number = _submit(slurm)
    _running(slurm, number)
    slurm("scontrol", "requeuehold", number)
    slurm.wait(lambda: slurm.job(number)["JobState"] in ("PENDING", "REQUEUE_HOLD"), "it waits again")
    slurm("scancel", number)
    assert slurm.ended(int(number))["JobState"] == "CANCELLED"
    [job] = _listed(slurm)["jobs"]
    assert job["state"] == "ended"


def test_twenty_tasks_share_a_journal_without_wal(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    # As it is made on a network file system, which this machine has not.
    monkeypatch.setattr(database, "on_network_filesystem", lambda path: True)
    slurm.state.mkdir(mode=0o700)
    database.open_for_writing(slurm.state).close()
    (slurm.home / "go").touch()
    array = _submit(slurm, "--array", "0-19", "--cpus", "1", "--memory", "64M")
    slurm.wait(lambda: not slurm("squeue", "-h").strip(), "all are over")
    found = _listed(slurm)
    assert {job["platform"]["id"] for job in found["jobs"]} == {f"{array}_{index}" for index in range(20)}
    assert {(job["outcome"], job["code"]) for job in found["jobs"]} == {("succeeded", 0)}
    with sqlite3.connect(slurm.state / "holdfast.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("SELECT count(*) FROM jobs WHERE outcome = 'succeeded'").fetchone() == (20,)
    assert not list(Path(slurm.state).glob("holdfast.db-*"))
    # Some wait for their turn; none loses a record.
    assert not any("never reached the journal" in slurm.output(f"{array}_{index}") for index in range(20))
