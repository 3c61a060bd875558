"""The input of a prewarmed process: the command that its workers will run, and their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.act.warm.unsafe_imports import Lesson
from holdfast.act.warm.warm_command import OURS, PER_WORKER, Blueprint


class NurseryInput(msgspec.Struct, frozen=True):
    """The input of a prewarmed process: the command of its workers, and their environment."""

    plan: Blueprint
    #: The environment variables with equal values in all workers of the prewarmed process.
    env: Mapping[str, str]
    #: The workers' working directory.
    cwd: Path
    #: The modules to import first.
    preload: tuple[str, ...]
    #: Time limit for the imports, in seconds.
    import_s: float
    #: The job's id. /proc shows only a process's first environment, so the id must be in it for a surviving worker to
    #: be recognised.
    job_id: str

    def environment(self, control: int, entry_point: str) -> dict[str, str]:
        """Return the environment of the prewarmed process: the workers' environment, with `entry_point` (the directory
        of `sitecustomize`) first on PYTHONPATH. `control`: the fd of its socket to the supervisor.
        """
        pythonpath = self.env.get("PYTHONPATH")
        return {
            "HOLDFAST_NURSERY": str(control),
            "HOLDFAST_JOB": self.job_id,
            **self.env,
            "PYTHONPATH": f"{entry_point}{os.pathsep}{pythonpath}" if pythonpath else entry_point,
        }

    def briefing(self, lesson: Lesson | None) -> dict[str, Any]:
        """Return the first message to the prewarmed process."""
        return {
            "supervisor": os.getpid(),
            "pythonpath": self.env.get("PYTHONPATH"),
            "script": self.plan.script,
            "module": self.plan.module,
            "preload": list(self.preload),
            "per_worker": sorted(PER_WORKER),
            "ours": OURS,
            "lesson": None if lesson is None else msgspec.to_builtins(lesson),
        }
