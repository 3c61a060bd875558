"""The first door of `holdfast run`: two processes, while there is next to nothing in either.

The one that was typed becomes the guard, and everything that a run needs is imported in the other. So the guard stays
small, forking copies little, and no page has to be copied later because two processes hold it.
"""

from __future__ import annotations

import os
import time

from holdfast.act.guard import guarded

TYPE_CHECKING = False  # `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.evidence import LostOwner
    from holdfast.model.exits import ExitReport


ITSELF = -1
"""Instead of a descriptor: this process is the guard, and nothing guards it."""


def under_guard(carry: Callable[[int], int]) -> int:
    """Run `carry(fd)` in a child process under guard; its exit status. `fd` is readable when the guard has died.

    Where the child raises `HandBack`, the guard runs `carry(ITSELF)`.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # A closed one (`>&-`) would become the number of some file of ours.
            os.open(os.devnull, os.O_RDWR)
    return guarded(carry, lost, lambda: carry(ITSELF))


def end_left(job_id: str) -> frozenset[int]:
    """Kill what lives on in the control groups of a job that was lost; the processes that were killed."""
    from holdfast.act.cgroups import end_left as end

    return end(job_id)


def explain_lost(lost: LostOwner) -> ExitReport:
    """The report of a job whose supervisor died without one."""
    from holdfast.explain.lost_owner import explain_lost_owner

    return explain_lost_owner(lost)


def lost(pid: int, number: int) -> None:
    """The guard's last act for a supervisor that was killed: the job is closed with the exact cause."""
    from holdfast.act.cgroups import sweep
    from holdfast.record.home import home_of
    from holdfast.record.loss import Ending
    from holdfast.record.views import reconcile

    ending = Ending(pid=pid, signal=number, at=time.time())
    survey = reconcile(home_of(os.environ), explain_lost, ending, end_left=end_left)
    for report in survey.newly_lost:
        sweep(report.job_id)
