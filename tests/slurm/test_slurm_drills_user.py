"""The same as an ordinary user, on a cluster of three slurmd that is his own: no root, no namespaces, one address."""

from __future__ import annotations

import pytest
from real_slurm import Slurm, SlurmOf
from slurm_drilling import Job

from drilling import phrases


@pytest.fixture
def flat(slurm_of: SlurmOf) -> Slurm:
    return slurm_of(flat=True)


def test_a_user_runs_a_job_over_three_nodes(flat: Slurm) -> None:
    job = Job(flat, "-N3").submit()
    job.common_step(1)
    job.order(2, "kill")
    job.common_step(2)
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
    assert phrases(job.report) == ["KilledBySignal", "Succeeded"]


def test_a_slurmd_that_is_killed_ends_nothing(flat: Slurm) -> None:
    job = Job(flat, "-N3").submit()
    job.common_step(1)
    flat.killd("n3")
    job.common_step(1, more=16)
    flat.startd("n3")
    job.common_step(1, more=8)
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
    assert phrases(job.report) == ["Succeeded"]
