"""Nodes of an allocation that lose their power or their link: who goes on, and what the report says."""

from __future__ import annotations

from collections.abc import Callable

from real_slurm import Slurm
from slurm_drilling import GLOO, Job

from drilling import culprits, phrases

SlurmOf = Callable[..., Slurm]
SOON = ("--rdzv-conf", "last_call_timeout=2")


def test_a_job_over_three_nodes_of_an_allocation_just_runs(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit(trainer=GLOO)
    job.common_step(1)
    assert sorted(job.hosts(1).values()) == ["n1", "n2", "n3"]
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["ExitCode"]) == ("COMPLETED", "0:0")
    assert phrases(job.report) == ["Succeeded"]


def test_a_spare_takes_the_seat_of_a_node_that_lost_its_power(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit("--nnodes", "2", "--spares", "1", trainer=GLOO)
    job.common_step(1)
    before = job.hosts(1)
    assert before == {0: "n1", 1: "n2"}
    slurm.off("n2")
    job.common_step(2)
    assert job.hosts(2) == {0: "n1", 1: "n3"}
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "0")
    assert phrases(job.report) == ["NodeFailed", "Succeeded"]
    assert "n2" in job.report["attempts"][0]["report"]["reason"]
    assert culprits(job.report)[0] is None or culprits(job.report)[0] == (1, "n2")
