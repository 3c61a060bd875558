"""`--on-event`, `--on-end` and `--summary` of a job on a real cluster: the owner's pod tells each thing once."""

from __future__ import annotations

import json
from pathlib import Path

from pods_at_work import OUT, Job
from real_kubernetes import Shared

FAILS = """
import os, signal
if os.environ["RANK"] == "1":
    raise ValueError("no such shard: 17")
signal.pause()
"""


def test_the_owners_pod_tells_the_end_once_with_the_report_on_stdin(kubernetes: Shared, tmp_path: Path) -> None:
    words = (
        *("--on-event", f'echo "$HOLDFAST_EVENT $HOLDFAST_NOTICE_ATTEMPT $HOSTNAME" >> {OUT}/told'),
        *("--on-end", f"cat >> {OUT}/end; echo >> {OUT}/end", "--summary", f"{OUT}/summary.md"),
    )
    job = Job(kubernetes, tmp_path / "out", trainer=FAILS, words=words, restarts=1, retries=0)
    job.submit()
    assert job.until_over().get("failed") == 1, job.told()
    told = [line.split() for line in (job.out / "told").read_text().splitlines()]
    of_first = [["attempt_ended", "1"], ["budget_nearly_spent", "1"]]
    assert [line[:-1] for line in told] == [["job_started"], *of_first, ["attempt_ended", "2"], ["job_ended"]]
    assert {line[-1] for line in told} == {pod["metadata"]["name"] for pod in job.owners()}
    [ended] = [json.loads(line) for line in (job.out / "end").read_text().splitlines() if line]
    assert (ended["event"], ended["report"]["phrase"]) == ("job_ended", "UserException")
    assert ended["report"]["first"]["rank"] == 1 and len(ended["report"]["attempts"]) == 2
    assert (job.out / "summary.md").read_text().count("## FAILED: ") == 1
