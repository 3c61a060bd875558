"""What ends a job from outside, told apart: scancel, a requeue, a preemption, the time limit; as root and as a user.

The ranks listen: each gets a notice with the seconds left, saves, and leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from real_slurm import Slurm
from slurm_drilling import Job

from drilling import phrases

SlurmOf = Callable[..., Slurm]
LISTENS = ("0.03", "drains")
PREEMPTING = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
URGENT = "PartitionName=urgent Nodes=n[1-3] PriorityTier=10 State=UP"


@pytest.fixture(params=["root", "user"])
def anyones(request: pytest.FixtureRequest, slurm_of: SlurmOf) -> Slurm:
    """The cluster of root, and that of an ordinary user."""
    return slurm_of(kill_wait_s=10, flat=request.param == "user")


def saved(job: Job) -> set[int]:
    """The ranks that have saved upon a notice, each of which had seconds for it."""
    assert all(event["seconds"] > 0 for event in job.events("notice"))
    return {event["rank"] for event in job.events("saved")}


def test_scancel(anyones: Slurm) -> None:
    job = Job(anyones, "-N3").submit(words=LISTENS)
    job.common_step(1)
    anyones("scancel", str(job.id))
    assert job.ended()["JobState"] == "CANCELLED"
    assert saved(job) == {0, 1, 2}
    assert phrases(job.report) == ["StoppedByOperator"] and "scancel" in job.report["reason"]


def test_scontrol_requeue_leads_to_the_next_attempt_in_another_run(anyones: Slurm) -> None:
    job = Job(anyones, "-N3").submit("--max-restarts", "0", words=LISTENS)
    job.common_step(1)
    anyones("scontrol", "requeue", str(job.id))
    job.common_step(2)
    assert saved(job) == {0, 1, 2}
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "1")
    assert len(phrases(job.report)) == 2 and phrases(job.report)[-1] == "Succeeded"


def test_a_preempted_job_goes_back_into_the_queue_and_goes_on(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10, conf=PREEMPTING, main="PriorityTier=1 GraceTime=20", lines=[URGENT])
    job = Job(slurm, "-N3", "--exclusive").submit("--max-restarts", "0", words=LISTENS)
    job.common_step(1)
    urgent = slurm.sbatch("sleep 1", "-N3", "-p", "urgent", "--exclusive")
    job.common_step(2)
    assert saved(job) == {0, 1, 2}
    assert slurm.job(urgent)["JobState"] == "COMPLETED"
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
    assert phrases(job.report) == ["Preempted", "Succeeded"]


def test_at_the_time_limit_the_last_seconds_are_for_a_checkpoint(anyones: Slurm) -> None:
    job = Job(anyones, "-N3", "--time=1").submit(words=LISTENS)
    job.common_step(1)
    job.wait(lambda: saved(job) == {0, 1, 2}, "all ranks have saved")
    record = job.ended()
    assert record["JobState"] != "TIMEOUT", "it ended in time"
    assert job.report["phrase"] == "TimeLimitReached"
