"""What ends a job from outside, told apart, on the cluster of an ordinary user: scancel, a requeue, the time limit.

The ranks listen: each gets a notice with the seconds left, saves, and leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from real_slurm import Slurm
from slurm_drilling import STEP_S, Job

from drilling import phrases

LISTENS = (STEP_S, "drains")


@pytest.fixture
def own(slurm_of: Callable[..., Slurm]) -> Slurm:
    """The cluster of an ordinary user."""
    return slurm_of(kill_wait_s=10, flat=True)


def saved(job: Job) -> set[int]:
    """The ranks that have saved upon a notice, each of which had seconds for it."""
    assert all(event["seconds"] > 0 for event in job.events("notice"))
    return {event["rank"] for event in job.events("saved")}


def test_a_users_scancel(own: Slurm) -> None:
    job = Job(own, "-N3").submit(words=LISTENS)
    job.common_step(1)
    own("scancel", str(job.id))
    assert job.ended()["JobState"] == "CANCELLED"
    assert saved(job) == {0, 1, 2}
    assert phrases(job.report) == ["StoppedByOperator"] and "scancel" in job.report["reason"]


def test_a_users_scontrol_requeue_leads_to_the_next_attempt_in_another_run(own: Slurm) -> None:
    job = Job(own, "-N3").submit("--max-restarts", "0", words=LISTENS)
    job.common_step(1)
    own("scontrol", "requeue", str(job.id))
    job.common_step(2)
    assert saved(job) == {0, 1, 2}
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "1")
    assert len(phrases(job.report)) == 2 and phrases(job.report)[-1] == "Succeeded"


def test_at_a_users_time_limit_the_last_seconds_are_for_a_checkpoint(own: Slurm) -> None:
    job = Job(own, "-N3", "--time=1").submit(words=LISTENS)
    job.common_step(1)
    job.wait(lambda: saved(job) == {0, 1, 2}, "all ranks have saved")
    record = job.ended()
    assert record["JobState"] != "TIMEOUT", "it ended in time"
    assert job.report["phrase"] == "TimeLimitReached"
