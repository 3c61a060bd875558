"""`--on-event`, `--on-end` and `--summary` of a job that Slurm runs: the owner tells each thing once, not each node."""

from __future__ import annotations

import json

from real_slurm import Slurm

WORKER = """\
import os
print("here", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("no such shard: 17")
import signal; signal.pause()
"""


def test_a_job_under_srun_tells_its_end_once_with_the_report_on_stdin(slurm: Slurm) -> None:
    (slurm.home / "train.py").write_text(WORKER)
    (slurm.home / "told.sh").write_text('echo "$HOLDFAST_EVENT $HOLDFAST_NOTICE_ATTEMPT $(hostname)" >> told\n')
    end = "'cat >> end; echo >> end'"
    notices = f"--on-event 'sh told.sh' --on-end {end} --summary summary.md"
    job = slurm.sbatch(
        f"srun holdfast run --no-checks --nproc-per-node 1 --max-restarts 1 --same-failure 0 {notices} train.py",
        *("-N3", "--ntasks-per-node=1", "--no-kill"),
    )
    assert slurm.ended(job)["JobState"] == "FAILED"
    told = [line.split() for line in (slurm.home / "told").read_text().splitlines()]
    events = [line[:-1] for line in told]
    of_first = [["attempt_ended", "1"], ["budget_nearly_spent", "1"]]
    assert events == [["job_started"], *of_first, ["attempt_ended", "2"], ["job_ended"]]
    assert len({line[-1] for line in told}) == 1, "one node alone tells them"
    [ended] = [json.loads(line) for line in (slurm.home / "end").read_text().splitlines() if line]
    assert (ended["event"], ended["report"]["phrase"]) == ("job_ended", "UserException")
    assert ended["report"]["first"]["rank"] == 1 and len(ended["report"]["attempts"]) == 2
    assert (slurm.home / "summary.md").read_text().count("## FAILED: ") == 1
    slurm.nothing_left()
