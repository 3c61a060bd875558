"""Class and reason of a job's end in the comment of Slurm's job, and from there in sacct."""

from __future__ import annotations

from real_slurm import USER, Slurm, SlurmOf
from slurm_drilling import ACCOUNTING

FAILING = """
import os, sys
if os.environ["HOLDFAST_ATTEMPT"] == "1" or "always" in sys.argv:
    sys.exit(203)
"""
RUN = "exec holdfast run --no-checks --max-restarts 1"


def test_class_and_reason_stand_behind_the_users_own_comment(slurm: Slurm) -> None:
    (slurm.home / "job.py").write_text(FAILING)
    job = slurm.sbatch(f"{RUN} --nproc-per-node 2 job.py always", '--comment=sweep 3, "seed" 7', user=USER)
    assert slurm.ended(job)["ExitCode"] == "203:0", slurm.output(job)
    assert slurm.job(job)["Comment"].startswith('sweep 3, "seed" 7; holdfast: UserException: ')
    assert slurm.job(job)["Comment"].endswith(" (203)")


def test_the_last_attempt_has_the_last_word_also_where_it_succeeds(slurm: Slurm) -> None:
    (slurm.home / "job.py").write_text(FAILING)
    job = slurm.sbatch(f"{RUN} job.py", user=USER)
    assert slurm.ended(job)["ExitCode"] == "0:0", slurm.output(job)
    assert slurm.job(job)["Comment"].startswith("holdfast: Succeeded: ")


def test_a_run_that_is_started_again_takes_the_place_of_its_first_ones_line(slurm: Slurm) -> None:
    first = slurm.home / "first.sh"
    first.write_text('#!/bin/sh\n[ "$HOLDFAST_ATTEMPT" = 1 ] && exec sleep 600\nexit 0\n')
    first.chmod(0o755)
    job = slurm.sbatch("exec holdfast run --no-checks --no-python ./first.sh", "--comment=mine", user=USER)
    slurm.wait(lambda: "the worker is up" in slurm.output(job), "it runs")
    node = slurm.job(job)["NodeList"]
    fault = ("faults", "report", "--device", node, "--code", "80E18005", "--once")
    assert slurm.holdfast(*fault, on=node, user=USER).wait() == 0
    slurm.wait(lambda: slurm.job(job)["Restarts"] == "1", "the job is requeued")
    assert slurm.job(job)["Comment"].startswith(f"mine; holdfast: AcceleratorFault: {node}, used by rank 0")
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert slurm.job(job)["Comment"].startswith("mine; holdfast: Succeeded: ")


def test_a_job_that_succeeds_at_once_and_one_that_asks_for_none_have_no_comment(slurm: Slurm) -> None:
    (slurm.home / "job.py").write_text(FAILING)
    good = slurm.sbatch(f"{RUN} --no-python true")
    silent = slurm.sbatch(f"{RUN} --no-job-comment job.py always", "--comment=mine")
    assert "Comment" not in slurm.ended(good)
    assert slurm.ended(silent)["Comment"] == "mine"


def test_sacct_shows_class_and_reason_where_the_cluster_keeps_comments(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(**ACCOUNTING)
    (slurm.home / "job.py").write_text(FAILING)
    job = slurm.sbatch(f"{RUN} job.py always", "--comment=mine")
    slurm.ended(job)
    slurm.wait(lambda: slurm.sacct(job)[0]["State"] == "FAILED", "sacct has the job's end")
    row = slurm.sacct(job)[0]
    assert row["ExitCode"] in ("75:0", "203:0"), "sacct of 22.05 takes 128 from a status above 127"
    assert row["Comment"].startswith("mine; holdfast: UserException: rank 0 on n1: ")
    assert row["Comment"].endswith(" (203)")
