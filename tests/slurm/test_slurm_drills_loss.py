"""Nodes of an allocation that lose their power or their link: who goes on, and what the report says."""

from __future__ import annotations

from real_slurm import Slurm
from slurm_drilling import GLOO, Job

from drilling import phrases


def test_a_job_over_three_nodes_of_an_allocation_just_runs(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit()
    job.common_step(1)
    assert job.hosts(1) == {0: "n1", 1: "n2", 2: "n3"}
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["ExitCode"]) == ("COMPLETED", "0:0")
    assert phrases(job.report) == ["Succeeded"]


def test_a_spare_takes_the_seat_of_a_node_that_lost_its_power(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit("--nnodes", "2", "--spares", "1", trainer=GLOO)
    job.common_step(1)
    assert job.hosts(1) == {0: "n1", 1: "n2"}
    slurm.off("n2")
    job.common_step(2)
    assert job.hosts(2) == {0: "n1", 1: "n3"}
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "0")
    assert phrases(job.report) == ["NodeFailed", "Succeeded"]
    first = job.report["attempts"][0]
    assert "n2" in first["report"]["reason"] and not first["decision"]["charged"]


def test_a_node_whose_link_is_cut_ends_its_rank_by_itself_and_a_spare_takes_the_seat(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit("--nnodes", "2", "--spares", "1")
    job.common_step(1)
    slurm.cut("n2")
    job.common_step(2)
    assert job.hosts(2) == {0: "n1", 1: "n3"}
    job.wait(lambda: not [line for line in slurm.left() if "n2" in line and "trainer" in line], "rank 1 of n2 is over")
    slurm.join("n2")
    job.common_step(2)
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
    assert phrases(job.report) == ["NodeFailed", "Succeeded"]


def test_a_job_that_needs_all_nodes_waits_for_the_one_that_was_lost(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit("--replace-wait", "1")
    job.common_step(1)
    slurm.off("n2")
    job.wait(lambda: "has 2 other nodes, and the job needs 3" in slurm.output(job.id), "the node is not left out")
    slurm.wait(lambda: slurm.job(job.id)["JobState"] == "PENDING", "it is in the queue")
    slurm.boot("n2")
    job.common_step(2)
    assert job.hosts(2) == {0: "n1", 1: "n2", 2: "n3"}
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
