"""What Slurm calls a job: read from the environment at the start, kept with the job, and accepted by every verb."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.model.exit_report import Outcome
from holdfast.model.job_spec import JobSpec, PlatformJob, Role
from holdfast.platforms.slurm.job_identity import job_name, platform_job
from holdfast.record.job_directory import claim
from holdfast.record.job_lookup import runs_of
from holdfast.record.job_views import JobState, JobView, reconcile
from holdfast.record.journal import Journal


def _id(**variables: str) -> str | None:
    found = platform_job({f"SLURM_{name}": value for name, value in variables.items()})
    return found.id if found else None


def test_the_id_is_what_people_type() -> None:
    assert _id() is None
    assert _id(JOB_ID="42") == "42"
    assert _id(JOB_ID="49", ARRAY_JOB_ID="42", ARRAY_TASK_ID="7") == "42_7"
    # The last task of an array to start has the array's own number.
    assert _id(JOB_ID="42", ARRAY_JOB_ID="42", ARRAY_TASK_ID="0") == "42_0"


@pytest.mark.parametrize("number", ["", "0", "x", "-1", "4" * 20, "42\n", "../42"])
def test_what_is_no_number_is_no_job_of_slurm(number: str) -> None:
    assert _id(JOB_ID=number) is None
    assert _id(JOB_ID="42", ARRAY_JOB_ID=number, ARRAY_TASK_ID="1") == "42"


def _holdfast(home: Path, *words: str, **slurm: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    env |= {f"SLURM_{name}": value for name, value in slurm.items()}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**env, "HOLDFAST_HOME": str(home)},
    )


RUN_WORDS = ("run", "--no-checks", "--name")


@pytest.mark.real
def test_every_verb_takes_the_id_and_shows_it(tmp_path: Path) -> None:
    for index in ("0", "1"):
        ran = _holdfast(
            tmp_path,
            *RUN_WORDS,
            f"t{index}",
            "--no-python",
            "echo",
            "hi",
            JOB_ID="41",
            ARRAY_JOB_ID="41",
            ARRAY_TASK_ID=index,
        )
        assert ran.returncode == 0, ran.stderr
    listed = _holdfast(tmp_path, "jobs").stdout.splitlines()
    assert listed[0].split()[:3] == ["JOB", "SLURM", "NAME"]
    assert [line.split()[1:3] for line in listed[1:]] == [["41_1", "t1"], ["41_0", "t0"]]
    rows = json.loads(_holdfast(tmp_path, "jobs", "--json").stdout)["jobs"]
    assert [row["platform"]["id"] for row in rows] == ["41_1", "41_0"]

    assert "(t0) SUCCEEDED" in (shown := _holdfast(tmp_path, "show", "41_0").stdout)
    assert shown.splitlines()[-1].split() == ["slurm", "41_0"]
    assert json.loads(_holdfast(tmp_path, "show", "41_0", "--json").stdout)["platform"]["id"] == "41_0"
    assert _holdfast(tmp_path, "logs", "41_1", "--stdout").stdout == "hi\n"
    assert "is over already" in _holdfast(tmp_path, "stop", "41_1", "--reason", "x").stdout

    whole = _holdfast(tmp_path, "show", "41")
    assert whole.returncode == 2
    assert "41 is an array of 2 jobs: expected one of them, 41_0 to 41_1" in whole.stderr


@pytest.mark.parametrize(
    ("of_slurm", "words", "more", "name"),
    [
        ("llama 7b", (), {}, "llama-7b"),
        ("größe", (), {}, "größe"),
        ("train.sbatch", (), {}, "train.sbatch"),
        ("llama", ("--name", "mine"), {}, "mine"),
        ("llama", (), {"HOLDFAST_NAME": "mine"}, "mine"),
        ("!!!", (), {}, "true"),
        ("wrap", (), {}, "true"),
    ],
)
@pytest.mark.real
def test_a_job_is_called_as_in_squeue(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_slurm: str,
    words: tuple[str, ...],
    more: dict[str, str],
    name: str,
) -> None:
    for variable, value in more.items():
        monkeypatch.setenv(variable, value)
    slurm = {"JOB_ID": "42", "JOB_NAME": of_slurm}
    assert _holdfast(tmp_path, "run", "--no-checks", *words, "--no-python", "true", **slurm).returncode == 0
    [listed] = json.loads(_holdfast(tmp_path, "jobs", "--json").stdout)["jobs"]
    assert listed["name"] == name


@pytest.mark.real
def test_the_job_of_a_file_keeps_its_name_and_the_job_of_a_variable_has_slurms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "job.yaml").write_text("name: of-file\nroles: {w: {count: 1, command: ['true']}}\n")
    slurm = {"JOB_ID": "42", "JOB_NAME": "llama"}
    _holdfast(tmp_path, "run", "--no-checks", "--job", str(file), **slurm)
    monkeypatch.setenv("USER_CMD", "true")
    _holdfast(tmp_path, "run", "--no-checks", "--command-from", "USER_CMD", **slurm)
    monkeypatch.setenv("PAI_JOB_NAME", "of-pai")
    _holdfast(tmp_path, "run", "--no-checks", "--command-from", "USER_CMD", **slurm)
    listed = json.loads(_holdfast(tmp_path, "jobs", "--json").stdout)["jobs"]
    assert [job["name"] for job in listed] == ["of-pai", "llama", "of-file"]


@pytest.mark.parametrize("name", ["wrap", "sbatch", "interactive", "bash", "holdfast", ""])
def test_a_name_that_slurm_has_made_up_is_none(name: str) -> None:
    assert job_name({"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": name}) == ""
    assert job_name({"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": f"{name}-7b"}) == f"{name}-7b"


def test_a_job_within_a_worker_is_not_called_as_the_one_around_it() -> None:
    around = {"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "llama"}
    assert (job_name(around), job_name({**around, "HOLDFAST_ATTEMPT": "1"})) == ("llama", "")
    assert job_name({"SLURM_JOB_NAME": "left over"}) == ""


ONE_NODE = {"JOB_ID": "42", "JOB_NODELIST": "n1"}


@pytest.mark.parametrize(
    ("slurm", "words", "note"),
    [
        (
            {"HET_SIZE": "2"},
            (),
            "Slurm job 42 has 2 components: the job runs on the 1 node of this one, and leaves the others idle",
        ),
        ({"HET_SIZE": "1"}, (), ""),
        (
            {"JOB_NODELIST": "n[1-2]", "NTASKS": "3", "TASKS_PER_NODE": "2,1"},
            ("--standalone",),
            (
                "Slurm job 42 has unequal numbers of tasks on its nodes (2,1): each node gets one worker; "
                "sbatch --ntasks-per-node=N or holdfast run --nproc-per-node N asks for equally many"
            ),
        ),
        (
            {"JOB_NODELIST": "n[1-2]", "NTASKS": "3", "TASKS_PER_NODE": "2,1", "GPUS_ON_NODE": "2"},
            ("--nnodes", "1"),
            "on its nodes (2,1): each node gets a worker for each GPU;",
        ),
        (
            {"JOB_NODELIST": "n[1-2]", "NTASKS": "3", "TASKS_PER_NODE": "2,1"},
            ("--standalone", "--nproc-per-node=1"),
            "",
        ),
        ({"JOB_NODELIST": "n[1-2]", "TASKS_PER_NODE": "8,4"}, ("--standalone",), ""),
        ({"NTASKS": "4", "TASKS_PER_NODE": "4"}, ("--nnodes", "1"), ""),
    ],
)
@pytest.mark.real
def test_what_a_job_leaves_idle_of_its_allocation_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: dict[str, str], words: tuple[str, ...], note: str
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    every = {**ONE_NODE, **slurm}
    ran = _holdfast(tmp_path, "run", "--no-checks", *words, "--no-python", "true", **every)
    assert ran.returncode == 0, ran.stderr
    said = " ".join((ran.stdout + ran.stderr).split())
    assert said.count("Slurm job 42") == bool(note) and note in said, said


@pytest.mark.real
def test_a_name_wins_over_a_platforms_id_and_both_are_said(tmp_path: Path) -> None:
    _holdfast(tmp_path, *RUN_WORDS, "one", "--no-python", "true", JOB_ID="77")
    _holdfast(tmp_path, *RUN_WORDS, "77", "--no-python", "true")
    shown = _holdfast(tmp_path, "show", "77")
    assert "(77) SUCCEEDED" in shown.stdout
    assert "77 is the name of job" in shown.stderr and "and slurm's id of job" in shown.stderr


@pytest.mark.real
def test_a_job_is_found_by_its_directory_where_the_journal_is_gone(tmp_path: Path) -> None:
    _holdfast(tmp_path, *RUN_WORDS, "first", "--no-python", "true", JOB_ID="90")
    _holdfast(tmp_path, *RUN_WORDS, "second", "--no-python", "true", JOB_ID="90")
    for file in tmp_path.glob("holdfast.db*"):
        file.unlink()
    assert "(second) SUCCEEDED" in _holdfast(tmp_path, "show", "90").stdout
    found = runs_of(tmp_path, PlatformJob(platform="slurm", id="90"))
    assert [owner.name for owner in found] == ["second", "first"]
    assert runs_of(tmp_path, PlatformJob(platform="slurm", id="90", cluster="other")) == []


def test_a_supervisor_that_had_its_job_queued_is_not_lost_until_the_platform_drops_it(tmp_path: Path) -> None:
    spec = JobSpec(
        name="demo",
        roles=(Role(name="worker", count=1, command=("x",)),),
        platform=PlatformJob(platform="slurm", id="42"),
    )
    place = claim(tmp_path, name="demo", now=1000.0, platform=spec.platform)
    journal = Journal.open(tmp_path)
    journal.create_job(place.job_id, spec, now=1000.0, host=place.lock.supervisor.host, pid=1)
    journal.close()
    place.lock.note_queued("n2 is lost")
    place.lock.release()
    [view] = reconcile(tmp_path, explain_lost_owner).jobs
    assert (view.state, view.queued) == (JobState.QUEUED, "n2 is lost")
    found = reconcile(tmp_path, explain_lost_owner, dropped={view.id: "not today (asked by ada)"})
    [report] = found.newly_lost
    assert (report.outcome, report.report.code) == (Outcome.STOPPED, 250)
    assert report.report.reason.startswith("not today (asked by ada). It waited to be started again: n2 is lost.")
    [view] = found.jobs
    assert view.state is JobState.ENDED


def test_a_job_whose_supervisor_is_gone_is_lost_only_where_its_platform_does_not_start_it_again(tmp_path: Path) -> None:
    place = claim(tmp_path, name="demo", now=1000.0, platform=PlatformJob(platform="slurm", id="42"))
    place.lock.release()
    asked = []

    def queue(jobs: Sequence[JobView]) -> dict[str, str]:
        asked.append([view.platform.id for view in jobs if view.platform])
        return {jobs[0].id: "PENDING (Resources)"}

    [view] = reconcile(tmp_path, explain_lost_owner, in_queue=queue).jobs
    assert (view.state, view.queued, asked) == (JobState.QUEUED, "PENDING (Resources)", [["42"]])
    [view] = reconcile(tmp_path, explain_lost_owner, in_queue=lambda jobs: {}).jobs
    assert (view.state, view.phrase) == (JobState.ENDED, "KilledBySignal")


@pytest.mark.real
def test_only_the_jobs_own_cluster_says_that_it_waits_no_more(tmp_path: Path) -> None:
    known = PlatformJob(platform="slurm", id="42", cluster="east")
    spec = JobSpec(name="demo", roles=(Role(name="worker", count=1, command=("x",)),), platform=known)
    place = claim(tmp_path / "home", name="demo", now=1000.0, platform=known)
    journal = Journal.open(tmp_path / "home")
    journal.create_job(place.job_id, spec, now=1000.0, host="n1", pid=1)
    journal.close()
    place.lock.note_queued("n2 is lost")
    place.lock.release()
    (commands := tmp_path / "bin").mkdir()

    def listed(cluster: str, queue: str) -> dict[str, Any]:
        for name, says in (("squeue", queue), ("scontrol", f"ClusterName             = {cluster}")):
            (commands / name).write_text(f"#!/bin/sh\necho '{says}'\n")
            (commands / name).chmod(0o755)
        env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), "PATH": f"{commands}:{os.environ['PATH']}"}
        words = [sys.executable, "-m", "holdfast", "jobs", "--json"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
        [job] = json.loads(done.stdout)["jobs"]
        return {name: job[name] for name in ("state", "queued", "outcome")}

    waits = {"state": "queued", "queued": "Resources", "outcome": None}
    assert listed("west", "42|PENDING|Resources|N/A") == waits
    assert listed("west", "7|PENDING|Resources|N/A") == {**waits, "queued": "n2 is lost"}
    assert listed("east", "42|PENDING|Resources|N/A") == waits
    assert listed("east", "7|PENDING|Resources|N/A") == {"state": "ended", "queued": None, "outcome": "stopped"}


#: What `srun` does where a job ends while a step of it runs: `holdfast stop` there has no time to print the answer.
ENDING_STEP = """#!{python}
import sys, time
from pathlib import Path
from holdfast.model.decisions import JobReport
from holdfast.model.exit_report import Blame, ExitReport, Outcome, Rerun
from holdfast.record.journal import Journal
why = {{"blame": Blame.OPERATOR, "rerun": Rerun.NEVER, "reason": "r", "solution": "s"}}
end = ExitReport(code=250, phrase="StoppedByOperator", **why)
if {ends}:
    journal = Journal.open(Path({home!r}))
    journal.finish(JobReport(job_id={job!r}, name="demo", outcome=Outcome.STOPPED, report=end), now=2000.0)
    journal.close()
print("srun: error: n1: task 0: Terminated", file=sys.stderr)
sys.exit(143)
"""


@pytest.mark.real
@pytest.mark.parametrize("ends", [True, False])
def test_a_job_that_ends_while_its_node_is_asked_has_been_stopped(tmp_path: Path, ends: bool) -> None:
    known = PlatformJob(platform="slurm", id="42")
    spec = JobSpec(name="demo", roles=(Role(name="worker", count=1, command=("x",)),), platform=known)
    place = claim(tmp_path / "home", name="demo", now=1000.0, platform=known)
    journal = Journal.open(tmp_path / "home")
    journal.create_job(place.job_id, spec, now=1000.0, host="n1", pid=1)
    journal.close()
    (commands := tmp_path / "bin").mkdir()
    step = ENDING_STEP.format(python=sys.executable, ends=ends, home=str(tmp_path / "home"), job=place.job_id)
    for name, text in (("srun", step), ("squeue", "#!/bin/sh\necho '42|RUNNING|None|N/A'\n")):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), "PATH": f"{commands}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "holdfast", "stop", place.job_id, "--reason", "enough"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    place.lock.release()
    if ends:
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"job {place.job_id} (demo): it has been stopped\n"
    else:
        assert done.returncode == 1
        assert "could not be asked there: srun: error: n1: task 0: Terminated" in " ".join(done.stderr.split())
        assert "try: scancel 42" in done.stderr
