"""A real Slurm ends a job, or wants to: holdfast says which it was, and workers that listen save before that."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_slurm import Slurm
from slurm_drilling import Job

SlurmOf = Callable[..., Slurm]

TRAINER = """
import json, os, pathlib, sys, threading, time
import holdfast
rank, attempt = os.environ["RANK"], os.environ["HOLDFAST_ATTEMPT"]
if attempt != "1":
    sys.exit(0)
told = threading.Event()
def save(notice):
    pathlib.Path(f"told-{rank}.new").write_text(json.dumps(notice))
    os.rename(f"told-{rank}.new", f"told-{rank}")
    time.sleep(SAVE_S)
    pathlib.Path(f"saved-{rank}").write_text(attempt)
    told.set()
holdfast.on_drain(save)
pathlib.Path(f"up-{rank}").touch()
told.wait()
sys.exit(0)
"""
DEAF = "import os, pathlib, time\npathlib.Path('up-' + os.environ['RANK']).touch()\ntime.sleep(600)\n"
PREEMPTION = [
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=low Nodes=n[1-3] PriorityTier=1 PreemptMode=REQUEUE GraceTime=15 State=UP",
    "PartitionName=high Nodes=n[1-3] PriorityTier=10 PreemptMode=OFF State=UP",
]


class Listening:
    """A job whose ranks save when they get their notice."""

    def __init__(
        self, slurm: Slurm, nodes: int, *sbatch: str, trainer: str = "", save_s: float = 0.2, run: str = ""
    ) -> None:
        (slurm.home / "train.py").write_text(trainer or TRAINER.replace("SAVE_S", str(save_s)))
        self.slurm, self.ranks = slurm, range(nodes)
        self.said = slurm.home / "report.json"
        words = run or f"exec holdfast run --no-checks --report {self.said} --nproc-per-node 1 train.py"
        self.id = slurm.sbatch(words, "--no-kill", "--open-mode=append", f"-N{nodes}", *sbatch)
        slurm.wait(lambda: all((slurm.home / f"up-{rank}").exists() for rank in self.ranks), "all ranks are up")

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.said.read_text())
        return found

    def told(self) -> list[dict[str, Any]]:
        """What each rank was told, once all have saved."""
        self.slurm.wait(lambda: all(self.file("saved", rank).exists() for rank in self.ranks), "all ranks have saved")
        return [json.loads(self.file("told", rank).read_text()) for rank in self.ranks]

    def file(self, name: str, rank: int) -> Path:
        return self.slurm.home / f"{name}-{rank}"

    def ended(self) -> str:
        """The state of Slurm's record."""
        state: str = self.slurm.ended(self.id)["JobState"]
        self.slurm.nothing_left()
        return state


@pytest.mark.parametrize("nodes", [1, 2])
def test_scancel(slurm_of: SlurmOf, nodes: int) -> None:
    slurm = slurm_of(kill_wait_s=10)
    job = Listening(slurm, nodes)
    slurm("scancel", str(job.id))
    assert {notice["reason"] for notice in job.told()} == {f"scancel of job {job.id}"}
    assert all(0 < notice["seconds"] < 10 for notice in job.told())
    assert job.ended() == "CANCELLED"
    assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")
    assert job.report["collateral"] == []


def test_under_cgroups_only_holdfast_gets_the_signal_and_the_workers_still_save(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10, cgroup=True)
    job = Listening(slurm, 2, "--mem=1500")
    slurm("scancel", str(job.id))
    job.told()
    assert job.ended() == "CANCELLED"
    assert job.report["reason"] == f"scancel of job {job.id}"


@pytest.mark.parametrize("nodes", [1, 2])
def test_ranks_that_die_of_slurms_own_sigterm_are_not_to_blame(slurm_of: SlurmOf, nodes: int) -> None:
    """Without cgroups it reaches them before holdfast can say anything."""
    slurm = slurm_of(kill_wait_s=10)
    job = Listening(slurm, nodes, trainer=DEAF)
    slurm("scancel", str(job.id))
    assert job.ended() == "CANCELLED"
    assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")
    assert job.report["collateral"] == list(job.ranks)
    assert job.report["original"]["signal"] == "SIGTERM"


def test_the_report_is_there_before_slurm_kills_what_does_not_leave(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=5)
    job = Listening(slurm, 2, save_s=600)
    slurm("scancel", str(job.id))
    assert job.ended() == "CANCELLED"
    assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")
    assert not any(job.file("saved", rank).exists() for rank in job.ranks)


def test_scancel_with_a_signal_leaves_the_job_to_itself(slurm: Slurm) -> None:
    job = Listening(slurm, 2)
    slurm("scancel", "--signal=TERM", str(job.id))
    assert job.ended() == "FAILED"
    assert job.report["phrase"] == "StoppedByOperator"
    assert job.report["reason"].startswith(f"scancel --signal=TERM of job {job.id}")


def test_a_signal_for_the_workers_goes_to_those_that_handle_it(slurm: Slurm) -> None:
    handles = """
import os, pathlib, signal, time
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path("got-0").write_text("1"))
else:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
pathlib.Path("up-" + os.environ["RANK"]).touch()
while not pathlib.Path("got-0").exists():
    time.sleep(0.05)
"""
    job = Listening(slurm, 2, trainer=handles)
    slurm("scancel", "--signal=USR1", str(job.id))
    assert job.ended() == "COMPLETED"


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_preemption_with_a_grace(slurm_of: SlurmOf, nodes: int) -> None:
    """One node has no step of its own, and hears of it by one that only listens."""
    slurm = slurm_of(lines=PREEMPTION, kill_wait_s=10)
    job = Listening(slurm, nodes, "-p", "low", "--no-requeue")
    if nodes == 1:
        slurm.wait(lambda: slurm("squeue", "-h", "-s", "-o", "%j").count("holdfast-listens") == 1, "a step listens")
    slurm.jobs.append(int(slurm("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true")))
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm preempts job {job.id}: another job gets the nodes at ")
        assert 0 < notice["seconds"] < 15
    job.ended()
    assert job.report["phrase"] == "Preempted"


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_checkpoint_in_the_last_seconds_before_a_time_limit(slurm_of: SlurmOf, nodes: int) -> None:
    slurm = slurm_of(kill_wait_s=10)
    job = Listening(slurm, nodes, "--time=1")
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm's time limit of 0:01:00 (job {job.id}) is over at ")
        assert 0 < notice["seconds"] < 30
    job.ended()
    assert (job.report["phrase"], job.report["attempt"]) == ("TimeLimitReached", 1)


@pytest.mark.parametrize("typed", [False, True])
def test_the_signal_that_was_ordered_is_the_notice_of_the_time_limit(slurm_of: SlurmOf, typed: bool) -> None:
    """In the script, or on sbatch's command line, which accounting has."""
    slurm = slurm_of(kill_wait_s=10, db=typed)
    word = "--signal=B:USR1@170"
    line = "" if typed else f"#SBATCH {word}\n"
    run = f"#!/bin/bash\n{line}exec holdfast run --no-checks --report report.json train.py\n"
    job = Listening(slurm, 1, "--time=4", *([word] if typed else []), run=run)
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm's time limit of 0:04:00 (job {job.id}) is over at ")
        assert notice["seconds"] > 60
    job.ended()
    assert job.report["phrase"] == "TimeLimitReached"


def test_a_signal_while_slurmctld_is_away_stops_the_job_and_says_what_is_not_known(slurm: Slurm) -> None:
    job = Listening(slurm, 2)
    slurm.ctld_kill()
    slurm("sh", "-c", "kill -TERM $(pgrep -o holdfast-guard)", on="n1")
    job.told()
    slurm.ctld_start()
    job.ended()
    assert job.report["phrase"] == "StoppedByOperator"
    assert f"job {job.id} got SIGTERM, and why is not known: slurmctld" in job.report["reason"]


def test_srun_holdfast_run_hears_of_scancel_on_each_node(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10)
    run = f"srun holdfast run --no-checks --report {slurm.home}/report.json --nproc-per-node 1 train.py"
    job = Listening(slurm, 2, run=run)
    slurm("scancel", str(job.id))
    job.told()
    assert job.ended() == "CANCELLED"
    assert job.report["reason"] == f"scancel of job {job.id}"


def test_a_job_that_slurm_suspends_goes_on_and_says_what_stopped_it(slurm: Slurm) -> None:
    drill = Job(slurm, "-N2").submit()
    drill.common_step(1)
    slurm("scontrol", "suspend", str(drill.id))
    time.sleep(10)  # longer than a lease: no process of the job runs
    slurm("scontrol", "resume", str(drill.id))
    drill.common_step(2)
    drill.finish()
    assert drill.ended()["JobState"] == "COMPLETED"
    assert f"job {drill.id}: Slurm had suspended it until " in drill.printed
    said = [each["text"] for each in drill.report["attempts"][0]["report"]["evidence"] if each["kind"] == "platform"]
    assert any("Slurm had suspended it until" in text for text in said), said


# ---------------------------------------------------------------------------------------------- started again


def phrases(job: Listening) -> list[str]:
    return [attempt["report"]["phrase"] for attempt in job.report["attempts"]]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_preempted_job_saves_and_goes_on_when_it_has_nodes_again(slurm_of: SlurmOf, nodes: int) -> None:
    slurm = slurm_of(lines=PREEMPTION, kill_wait_s=10)
    job = Listening(slurm, nodes, "-p", "low", "--requeue")
    slurm.jobs.append(int(slurm("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true")))
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["Preempted", "Succeeded"]
    assert not job.report["attempts"][0]["decision"]["charged"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_under_cgroups_a_preempted_job_saves_and_goes_on(slurm_of: SlurmOf, nodes: int) -> None:
    slurm = slurm_of(lines=PREEMPTION, kill_wait_s=10, cgroup=True)
    job = Listening(slurm, nodes, "-p", "low", "--requeue", "--mem=1500")
    slurm.jobs.append(int(slurm("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true")))
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["Preempted", "Succeeded"]


def test_scontrol_requeue_is_an_operators_and_the_job_goes_on(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10)
    job = Listening(slurm, 2, "--requeue")
    slurm("scontrol", "requeue", str(job.id))
    assert {notice["reason"] for notice in job.told()} == {f"scontrol requeue of job {job.id}"}
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["StoppedByOperator", "Succeeded"]


def test_at_a_time_limit_the_job_requeues_itself_where_its_user_allows_it(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10)
    run = f"exec holdfast run --no-checks --requeue-at-limit --report {slurm.home}/report.json train.py"
    job = Listening(slurm, 2, "--time=1", "--requeue", run=run)
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["TimeLimitReached", "Succeeded"]
    assert "in its queue again" not in slurm.output(job.id), "the job has asked for it: the signals are no news"


def test_at_a_time_limit_the_job_says_why_slurm_does_not_start_it_again(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10)
    run = f"exec holdfast run --no-checks --requeue-at-limit --report {slurm.home}/report.json train.py"
    job = Listening(slurm, 1, "--time=1", "--no-requeue", run=run)
    slurm.wait(lambda: "warning: --requeue-at-limit" in slurm.output(job.id), "it says so at its start")
    job.told()
    job.ended()
    assert phrases(job) == ["TimeLimitReached"]
    assert "; not queued again: Slurm's Requeue=0 for this job" in job.report["reason"]


SLOW = """#!/bin/sh
[ "$*" = "{words}" ] && sleep {seconds}
exec /usr/bin/scontrol "$@"
"""


@pytest.mark.parametrize(("words", "seconds"), [("show config", 4), ("show job 1", 4), ("show partition low", 4)])
def test_a_preemption_is_told_as_one_in_whatever_order_slurm_answers(
    slurm_of: SlurmOf, words: str, seconds: int
) -> None:
    slurm = slurm_of(lines=PREEMPTION, kill_wait_s=10)
    slow = slurm.home / "slow"
    slow.mkdir()
    (slow / "scontrol").write_text(SLOW.format(words=words, seconds=seconds))
    (slow / "scontrol").chmod(0o755)
    run = f"export PATH={slow}:$PATH\nexec holdfast run --no-checks --report {slurm.home}/report.json train.py"
    job = Listening(slurm, 1, "-p", "low", "--requeue", run=run)
    slurm.jobs.append(int(slurm("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true")))
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm preempts job {job.id}: another job gets the nodes at ")
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["Preempted", "Succeeded"]


@pytest.mark.parametrize("db", [False, True])
def test_a_preemption_without_a_grace_is_told_from_a_requeue_by_hand(slurm_of: SlurmOf, db: bool) -> None:
    """By slurmstepd's line in the output of the batch script, or by accounting."""
    lines = [line.replace("GraceTime=15 ", "") for line in PREEMPTION]
    slurm = slurm_of(lines=lines, kill_wait_s=10, db=db)
    job = Listening(slurm, 2, "-p", "low", "--requeue")
    slurm("scontrol", "requeue", str(job.id))
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["StoppedByOperator", "Succeeded"]
    for rank in job.ranks:
        job.file("saved", rank).unlink()
        job.file("up", rank).unlink()
    job = Listening(slurm, 2, "-p", "low", "--requeue")
    slurm.jobs.append(int(slurm("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true")))
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["Preempted", "Succeeded"]
    assert "no accounting" not in job.report["attempts"][0]["report"]["reason"]
