"""Slurm itself is away, or lacks something: a run that goes well is not disturbed, one that cannot start says why."""

from __future__ import annotations

from real_slurm import Slurm
from slurm_drilling import Job

from drilling import phrases


def test_slurmctld_is_killed_and_comes_back_and_nothing_ends(slurm: Slurm) -> None:
    job = Job(slurm, "-N3").submit()
    job.common_step(1)
    slurm.ctld_kill()
    job.common_step(1, more=8)
    job.order(1, "kill")
    job.common_step(2)  # a restart in place asks Slurm for nothing
    slurm.ctld_start()
    job.common_step(2, more=8)
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "0")
    assert phrases(job.report) == ["KilledBySignal", "Succeeded"]


def test_without_srun_on_the_path_the_run_says_so_and_ends(slurm: Slurm) -> None:
    job = Job(slurm, "-N2").submit(before='PATH=$(dirname "$(command -v holdfast)")')
    record = job.ended()
    assert record["JobState"] == "FAILED" and record["ExitCode"] != "0:0"
    assert "srun" in job.printed and "PATH" in job.printed and "Traceback" not in job.printed


def test_a_drained_node_is_avoided(slurm: Slurm) -> None:
    slurm("scontrol", "update", "nodename=n2", "state=drain", "reason=fan")
    job = Job(slurm, "-N2").submit()
    job.common_step(1)
    assert job.hosts(1) == {0: "n1", 1: "n3"}
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
