"""A memory kill in a step of Slurm's names step, limit and peak, also where the kernel's log tells nothing."""

from __future__ import annotations

import json
from typing import Any

from real_slurm import USER, Slurm, SlurmOf

GREEDY = """
import os, time
hoard = []
while os.environ["RANK"] == "1":
    hoard.append(bytearray(b"x" * (8 << 20)))
time.sleep(60)
"""


def report_of(slurm: Slurm) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((slurm.home / "report.json").read_text())
    return found


def test_a_rank_beyond_the_memory_of_the_job(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(nodes=1, cgroup=True)
    (slurm.home / "greedy.py").write_text(GREEDY)
    (slurm.home / "empty").touch()
    run = "--max-restarts 0 --no-checks --kernel-log empty --report report.json --nproc-per-node 2 greedy.py"
    job = slurm.sbatch(f"exec holdfast run {run}", "--mem=300", user=USER)
    ended = slurm.ended(job)
    report = report_of(slurm)

    assert (report["phrase"], report["first"]["rank"]) == ("HostOutOfMemoryKilled", 1)
    assert f"killed at the memory limit of Slurm's step {job}.batch" in report["reason"]
    assert "limit 300.0 MiB, peak 300.0 MiB" in report["reason"]
    assert ended["JobState"] == "OUT_OF_MEMORY"


def test_a_rank_on_another_node_beyond_the_memory_of_the_step(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(nodes=2, cgroup=True)
    (slurm.home / "greedy.py").write_text(GREEDY)
    (slurm.home / "empty").touch()
    run = "--max-restarts 0 --no-checks --kernel-log empty --report report.json greedy.py"
    job = slurm.sbatch(f"exec holdfast run {run}", "-N2", "--no-kill", "--mem=400", user=USER)
    slurm.ended(job)
    report = report_of(slurm)

    assert (report["phrase"], report["first"]["rank"], report["first"]["node"]) == ("HostOutOfMemoryKilled", 1, "n2")
    assert f"killed at the memory limit of Slurm's step {job}.0" in report["reason"], report["reason"]
    assert "limit 400.0 MiB" in report["reason"]


VICTIM = """
import os, time
if os.environ["RANK"] == "1":
    agent = os.getppid()
    with open(f"/proc/{agent}/comm") as comm, open(f"/proc/{agent}/oom_score_adj", "w") as adj:
        assert comm.read() == "holdfast-agent\\n"
        adj.write("1000")
    hoard = []
    while True:
        hoard.append(bytearray(b"x" * (8 << 20)))
time.sleep(60)
"""


def test_an_agent_that_the_kernel_chooses_is_told_of_by_its_guard(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(nodes=2, cgroup=True)
    (slurm.home / "victim.py").write_text(VICTIM)
    (slurm.home / "empty").touch()
    run = "--max-restarts 0 --no-checks --kernel-log empty --report report.json victim.py"
    job = slurm.sbatch(f"exec holdfast run {run}", "-N2", "--no-kill", "--mem=400", user=USER)
    slurm.ended(job)
    report = report_of(slurm)

    assert report["phrase"] == "HostOutOfMemoryKilled", report["reason"]
    limit = f"the memory limit of Slurm's step {job}.0 (sbatch --mem, srun --mem), limit 400.0 MiB"
    assert report["reason"].startswith(f"n2 with rank 1 lost its workers: its agent was killed at {limit}")


def test_a_supervisor_that_the_kernel_chooses_is_told_of_by_its_guard(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(nodes=1, cgroup=True)
    (slurm.home / "victim.py").write_text(VICTIM.replace("holdfast-agent", "holdfast"))
    job = slurm.sbatch("exec holdfast run --no-checks --nproc-per-node 2 victim.py", "--mem=400", user=USER)
    assert slurm.ended(job)["JobState"] == "OUT_OF_MEMORY"
    [path] = slurm.state.glob("jobs/*/report.json")
    report = json.loads(path.read_text())

    assert (report["phrase"], report["code"]) == ("HostOutOfMemoryKilled", 227)
    assert f"killed at the memory limit of Slurm's step {job}.batch (sbatch --mem, srun --mem)" in report["reason"]
