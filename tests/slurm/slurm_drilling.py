"""A job of holdfast's on a real Slurm whose ranks write down every step, and do what the test orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from real_slurm import WAIT_S, Fields, Slurm

from drilling import TRAINER, Workers

PREEMPTION = [
    # Without a time limit a job may have no EndTime in its grace: it depends on which of Slurm's schedulers started it.
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=low Nodes=n[1-3] PriorityTier=1 PreemptMode=REQUEUE GraceTime=15 MaxTime=1-0 State=UP",
    "PartitionName=high Nodes=n[1-3] PriorityTier=10 PreemptMode=OFF State=UP",
]
WITHOUT_GRACE = [line.replace("GraceTime=15 ", "") for line in PREEMPTION]
#: One cluster for all tests that take accounting: its database takes seconds to start.
ACCOUNTING: dict[str, Any] = {
    "db": True,
    "kill_wait_s": 10,
    "lines": WITHOUT_GRACE,
    "conf": {"AccountingStoreFlags": "job_comment"},
}
#: Of a trainer: three ranks that step three times as often take a sixth of a core.
STEP_S = "0.1"
GLOO = Path(__file__).with_name("gloo_trainer.py")


class Job(Workers):
    """`Job(slurm, "-N3").submit("--spares", "1")`: a batch script that ends with `exec holdfast run … TRAINER`."""

    def __init__(self, slurm: Slurm, *sbatch: str, name: str = "out") -> None:
        """`sbatch`: its options. `name`: of the directory that the ranks write to, one for each job."""
        super().__init__(slurm.home / name)
        self.slurm = slurm
        self.sbatch = sbatch
        self.id = 0
        self.said = slurm.home / f"{name}.report.json"

    def submit(
        self,
        *options: str,
        trainer: Path = TRAINER,
        words: Sequence[str] = (STEP_S,),
        before: str = "",
        user: int | None = None,
    ) -> Job:
        """`options` are holdfast's, `words` the trainer's, `before` lines of the script before holdfast starts."""
        run = ("exec holdfast run --no-checks --report", self.said, *options, trainer, self.out, *words)
        script = f"{before}\n{' '.join(map(str, run))}"
        self.id = self.slurm.sbatch(script, "--no-kill", *self.sbatch, user=user)
        return self

    def wait(self, what: Callable[[], object], why: str, timeout_s: float = WAIT_S) -> None:
        self.slurm.wait(what, why, timeout_s)

    @property
    def printed(self) -> str:
        return self.slurm.output(self.id)

    @property
    def report(self) -> dict[str, Any]:
        """What `--report` has."""
        report: dict[str, Any] = json.loads(self.said.read_text())
        return report

    def ended(self) -> Fields:
        """Until Slurm has nothing of it any more, and no process of it lives; Slurm's record."""
        record = self.slurm.ended(self.id)
        self.slurm.nothing_left()
        return record
