"""The same runtime on Slurm: a prolog lays it down on each node, and a job starts with it as a pod does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from containers import copied, exchange
from real_slurm import Slurm

#: Each node of these clusters has a /var/tmp of its own.
PAI = "/var/tmp/pai"


@pytest.fixture
def slurm(slurm_of: Callable[..., Slurm]) -> Slurm:
    return slurm_of(nodes=2)


def tree(slurm: Slurm, name: str = "tree") -> Path:
    """A built runtime on the file system that all nodes share."""
    return copied((exchange() / "holdfast/now").resolve(), slurm.home / name)


def test_a_prolog_lays_the_runtime_down_and_jobs_start_with_it_on_all_nodes(slurm: Slurm) -> None:
    slurm.hook("prolog", f"{tree(slurm)}/bin/holdfast prepare --into {PAI} >> {slurm.home}/prolog.$SLURMD_NODENAME")
    text = "export USER_CMD='echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME'"
    jobs = []
    for _ in range(2):
        jobs.append(slurm.sbatch(f"{text}\nexec {PAI}/run", "-N2", "--no-kill"))
        assert slurm.ended(jobs[-1])["JobState"] == "COMPLETED", slurm.output(jobs[-1])
        printed = slurm.output(jobs[-1])
        assert sorted(line.partition("] ")[2] for line in printed.splitlines() if "] rank " in line) == [
            "rank 0 of 2 on n1",
            "rank 1 of 2 on n2",
        ], printed
    for node in ("n1", "n2"):
        first, second = (slurm.home / f"prolog.{node}").read_text().splitlines()
        assert first.startswith(f"{PAI}/run is holdfast")
        assert second.startswith(f"{PAI}/run is there already")


def test_a_prolog_that_cannot_lay_it_down_keeps_the_job_off_the_node(slurm: Slurm) -> None:
    small = f"[ $SLURMD_NODENAME = n2 ] || {{ mkdir -p {PAI}; mount -t tmpfs -o size=1m small {PAI}; }}"
    said = f"2> {slurm.home}/said.$SLURMD_NODENAME"
    slurm.hook("prolog", f"{small}\nexec {tree(slurm)}/bin/holdfast prepare --into {PAI} {said}")
    job = slurm.sbatch(f"export USER_CMD='echo up on $SLURMD_NODENAME'\nexec {PAI}/run", "-N1")
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert "up on n2" in slurm.output(job)
    assert "and the runtime takes" in (slurm.home / "said.n1").read_text()
