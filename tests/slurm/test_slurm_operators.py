"""A person at the login node asks a job that runs on other nodes: the state directory is shared, and so is its key."""

from __future__ import annotations

import json

from real_slurm import Slurm

RANK = 'import os, time; print("rank", os.environ["RANK"], "runs", flush=True); time.sleep(600)'


def test_the_login_node_shows_reads_and_stops_a_job_over_nodes(slurm: Slurm) -> None:
    (slurm.home / "rank.py").write_text(RANK)
    job = slurm.sbatch("exec holdfast run --no-checks rank.py", "-N2", "--no-kill")
    slurm.wait(lambda: slurm.output(job).count(" runs") == 2, "both ranks run")
    shown = slurm.holdfast("show", str(job))
    assert shown.wait() == 0 and "RUNNING" in shown.out, shown.err
    logs = slurm.holdfast("logs", str(job), "--rank", "1", "--follow")
    slurm.wait(lambda: "rank 1 runs" in logs.out, "the log of a rank comes from its node")
    every = slurm.holdfast("logs", str(job), "--follow", "--since", "1h", "--grep", "^rank", "-t")
    slurm.wait(lambda: all(f"worker-{rank} stdout] rank {rank} runs" in every.out for rank in (0, 1)), "all are read")
    lines = slurm.holdfast("logs", str(job), "--json", "--tail", "1")
    assert lines.wait() == 0, lines.err
    found = [json.loads(line) for line in lines.out.splitlines()]
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    assert {line["line"] for line in found} == {"rank 0 runs", "rank 1 runs"}
    stopped = slurm.holdfast("stop", str(job), "--reason", "enough seen")
    assert stopped.wait() == 0, stopped.err
    assert slurm.ended(job)["ExitCode"] == "250:0"
    assert "STOPPED: enough seen" in slurm.output(job)
    assert not [*slurm.state.glob("jobs/*/key")], "the key does not outlive the job"
    assert (logs.wait(), every.wait()) == (0, 0), logs.err + every.err
