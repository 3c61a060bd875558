"""`holdfast submit --platform slurm`, step by step: the script, sbatch, and the lines printed for the user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.slurm.submit.slurm_submit import PreparedScript, prepare, submit, will_not_start
from holdfast.platforms.submission import Submission, SubmitRequest, Submitted
from holdfast.settings.resolved_settings import Settings


class SlurmSubmission(Submission):
    """A job file to be submitted to Slurm."""

    def __init__(self, request: SubmitRequest, settings: Settings, text: bytes) -> None:
        """Prepare the batch script. Raises `BadUsage`."""
        self._prepared = prepare(request, settings, text, cwd=Path.cwd())
        self.notes = self._prepared.notes
        copy = self._prepared.order.job_file
        self.unsubmitted = f"nothing was submitted; the job would run from a copy of {request.path}: {copy}"

    def text(self) -> str:
        return self._prepared.script

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        def known(job: PlatformJob) -> None:
            told(Submitted(job=job, name=self._prepared.order.name, words=_words(job, self._prepared)))
            if sorry := will_not_start(job, self._prepared):
                say(sorry)

        return submit(self._prepared, now=now, wait=wait, environment=os.environ, told=known)


def _words(job: PlatformJob, prepared: PreparedScript) -> str:
    array = prepared.order.wanted.text("array")
    one = f"{job.id}_{array.partition('%')[0].partition(',')[0].partition('-')[0]}" if array else job.id
    many = f", an array of jobs {array}" if array else ""
    return (
        f"submitted {prepared.order.name} as Slurm job {job.id}{many}\n"
        f"  look at it   holdfast show {one}\n"
        f"  its logs     holdfast logs -f {one}\n"
        f"  end it       holdfast stop {job.id} --reason TEXT"
    )
