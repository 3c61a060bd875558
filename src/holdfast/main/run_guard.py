"""The entry point of `holdfast run`: it forks while the process is still small.

The process that the user typed becomes the guard; the other one imports everything that a run needs. So the guard stays
small, forking copies little, and no page is copied later because two processes share it.
"""

from __future__ import annotations

import os
import time

from holdfast.act.guard import guarded

TYPE_CHECKING = False  # importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.evidence import MemoryKill
    from holdfast.model.exit_report import ExitReport
    from holdfast.model.lost_owner_evidence import LostOwner


_SIGKILL = 9
#: Used instead of a descriptor: this process is the guard, and has no guard itself.
ITSELF = -1


def under_guard(carry: Callable[[int], int]) -> int:
    """Run `carry(fd)` in a child process under guard; its exit status. `fd` is readable when the guard has died.

    Where the child raises `HandBack`, the guard runs `carry(ITSELF)`.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # A closed one (`>&-`) would become the descriptor of one of our files.
            os.open(os.devnull, os.O_RDWR)
    counted = memory_kills()
    return guarded(carry, lambda pid, number: lost(pid, number, counted), lambda: carry(ITSELF))


#: In the usual mounts: the file of v2, and that of v1.
_COUNTERS = ((b"", b"/sys/fs/cgroup%s/memory.events"), (b"memory", b"/sys/fs/cgroup/memory%s/memory.oom_control"))


def memory_kills() -> int | None:
    """How many memory kills this process's control group has counted; None where it has no counter.

    It is read before the first fork, and without imports: whose limit it was is found out only after a loss.
    """
    paths = {line[1]: line[2] for line in _rows(b"/proc/self/cgroup", b":") if len(line) == 3}
    for controller, file in _COUNTERS:
        for row in _rows(file % paths[controller], b" ") if controller in paths else ():
            if row[0] == b"oom_kill":
                return int(row[1])
    return None


def _rows(path: bytes, between: bytes) -> list[list[bytes]]:
    """The kernel's lines, in at most three parts; none where there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [line.split(between, 2) for line in os.read(fd, 1 << 16).splitlines()]
    except OSError:
        return []  # the group is being removed
    finally:
        os.close(fd)


def end_left(job_id: str) -> frozenset[int]:
    """Kill the processes that live on in the control groups of a lost job; returns them."""
    from holdfast.act.cgroups import end_left as end

    return end(job_id)


def explain_lost(lost: LostOwner) -> ExitReport:
    """The report of a job whose supervisor died without writing one."""
    from holdfast.explain.lost_owner import explain_lost_owner

    return explain_lost_owner(lost)


def lost(pid: int, number: int, counted: int | None = None) -> int | None:
    """The guard's last act after its supervisor was killed: it closes the job with the exact cause.

    `counted`: the control group's memory kills before the run. Returns the final code, if there is one.
    """
    from holdfast.act.cgroups import sweep
    from holdfast.record.job_views import reconcile
    from holdfast.record.lost_owner_report import OwnerEnd
    from holdfast.record.state_directory import home_of

    kill = _memory_kill(counted) if number == _SIGKILL else None
    ending = OwnerEnd(pid=pid, signal=number, at=time.time(), memory_kill=kill)
    survey = reconcile(home_of(os.environ), explain_lost, ending, end_left=end_left)
    for report in survey.newly_lost:
        sweep(report.job_id)
    return survey.newly_lost[0].report.code if kill is not None and len(survey.newly_lost) == 1 else None


def _memory_kill(counted: int | None) -> MemoryKill | None:
    """A memory kill since the count: the counter names no process, and the supervisor was the largest here."""
    now = memory_kills()
    if counted is None or now is None or now <= counted:
        return None
    from holdfast.act.cgroups import ControlGroups
    from holdfast.observe.memory_watch import MemoryWatch

    found = MemoryWatch(ControlGroups.make("").container, marked=False).kills({}, 0.0)
    return found[0] if found else None
