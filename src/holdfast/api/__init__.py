"""The Python API: run a job, explain logs, list jobs. `import holdfast` has the same names."""

from __future__ import annotations

from holdfast.api.explain_logs import explain
from holdfast.api.job_list import Job, JobEvent, jobs
from holdfast.api.public_report import Report
from holdfast.api.run_job import run
from holdfast.errors import BadUsage, HoldfastError

__all__ = ["BadUsage", "HoldfastError", "Job", "JobEvent", "Report", "explain", "jobs", "run"]
