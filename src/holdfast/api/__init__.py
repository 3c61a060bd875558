"""The Python API: run a job, explain logs, list jobs. `import holdfast` has the same names."""

from __future__ import annotations

from holdfast.api.explaining import explain
from holdfast.api.known_jobs import Job, JobEvent, jobs
from holdfast.api.report import Report
from holdfast.api.running import run
from holdfast.errors import BadUsage, HoldfastError

__all__ = ["BadUsage", "HoldfastError", "Job", "JobEvent", "Report", "explain", "jobs", "run"]
