"""Closes jobs that lost their owner: it ends their processes, explains their end, and writes their reports."""

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
    """The steps that close a lost job. Most processes of holdfast never need them."""

    def end_left(self, job_id: str) -> frozenset[int]:
        """Kill the processes that survive in the control groups of a lost job; return their ids."""
        return cgroups.end_left(job_id)

    def explain(self, lost: LostOwner) -> ExitReport:
        """Return the report for a job whose supervisor died without writing one."""
        return explain_lost_owner(lost)

    def close(self, pid: int, number: int, *, out_of_memory: bool) -> int | None:
        """Close the job of the supervisor `pid`, which the signal `number` killed; return the final code if there is
        one.

        `out_of_memory`: the kernel has killed a process of this control group since the run began. The counter names no
        process; the supervisor is assumed, because it was the largest.
        """
        kill = _memory_kill() if out_of_memory else None
        ending = OwnerEnd(pid=pid, signal=number, at=time.time(), memory_kill=kill)
        survey = reconcile(home_of(os.environ), self.explain, ending, end_left=self.end_left)
        for report in survey.newly_lost:
            cgroups.sweep(report.job_id)
        return survey.newly_lost[0].report.code if kill is not None and len(survey.newly_lost) == 1 else None


def _memory_kill() -> MemoryKill | None:
    """Return the memory kill of this process's control group, with the group whose limit caused it."""
    found = MemoryWatch(cgroups.ControlGroups.make("").container, marked=False).kills({}, 0.0)
    return found[0] if found else None
