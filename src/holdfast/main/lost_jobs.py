"""Closes jobs that have lost their owner: ends their processes, explains their end, and writes their reports."""

from __future__ import annotations

import os
import time

from holdfast.act import cgroups
from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.model.evidence import LostOwner, MemoryKill
from holdfast.model.exit_report import ExitReport
from holdfast.observe.memory_watch import MemoryWatch
from holdfast.record.job_views import reconcile
from holdfast.record.lost_owner_report import OwnerEnd
from holdfast.record.state_directory import home_of


class LostJobs:
    """Closes lost jobs. Most processes of holdfast never import this module."""

    def end_left(self, job_id: str) -> frozenset[int]:
        """Kill the processes in a lost job's control groups. Return the ids of these processes."""
        return cgroups.end_left(job_id)

    def explain(self, lost: LostOwner) -> ExitReport:
        """Return the report for a job whose supervisor died without writing one."""
        return explain_lost_owner(lost)

    def close(self, pid: int, number: int, *, out_of_memory: bool) -> int | None:
        """Close the job of a supervisor that was killed. Return the final code, or None if there is none.

        `pid`: process id of the supervisor.
        `number`: number of the signal that killed it.
        `out_of_memory`: whether the kernel has killed a process of this control group since the run began. The kernel's
        counter names no process, so holdfast assumes that the supervisor, the largest process, was killed.
        """
        kill = _memory_kill() if out_of_memory else None
        ending = OwnerEnd(pid=pid, signal=number, at=time.time(), memory_kill=kill)
        survey = reconcile(home_of(os.environ), self.explain, ending, end_left=self.end_left)
        for report in survey.newly_lost:
            cgroups.sweep(report.job_id)
        return survey.newly_lost[0].report.code if kill is not None and len(survey.newly_lost) == 1 else None


def _memory_kill() -> MemoryKill | None:
    """Return the OOM kill that this process's control group has counted, with the group whose limit caused the kill."""
    found = MemoryWatch(cgroups.ControlGroups.make("").container, marked=False).kills({}, 0.0)
    return found[0] if found else None
