"""The entry point of `holdfast run`, which forks while the process is still small.

The process that the user started becomes the guard. Its child imports everything that a run needs. So the guard stays
small, the fork copies little, and few shared pages are copied later.
"""

from __future__ import annotations

import os

from holdfast.act.guard import guarded

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.main.lost_jobs import LostJobs
    from holdfast.model.evidence import LostOwner
    from holdfast.model.exit_report import ExitReport


_SIGKILL = 9
#: Value in place of the guard's descriptor: this process is the guard itself.
ITSELF = -1


def under_guard(carry: Callable[[int], int]) -> int:
    """Run `carry(fd)` in a guarded child process and return its exit status. `fd` becomes readable when the guard dies.

    If the child raises `HandBack`, the guard itself runs `carry(ITSELF)`.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # A file opened later must not get the descriptor number of a closed standard stream (`>&-`).
            os.open(os.devnull, os.O_RDWR)
    counted = memory_kills()
    return guarded(carry, lambda pid, number: lost(pid, number, counted), lambda: carry(ITSELF))


#: Files with the OOM kill counters of cgroup v2 and v1, at their usual mount points.
_COUNTERS = ((b"", b"/sys/fs/cgroup%s/memory.events"), (b"memory", b"/sys/fs/cgroup/memory%s/memory.oom_control"))


def memory_kills() -> int | None:
    """Return the number of OOM kills that this process's control group has counted; None if the kernel has no counter.

    The function runs before the first fork, so it imports nothing. Which group's limit caused a kill is determined
    later, if the supervisor was killed.
    """
    paths = {line[1]: line[2] for line in _rows(b"/proc/self/cgroup", b":") if len(line) == 3}
    for controller, file in _COUNTERS:
        for row in _rows(file % paths[controller], b" ") if controller in paths else ():
            if row[0] == b"oom_kill":
                return int(row[1])
    return None


def _rows(path: bytes, between: bytes) -> list[list[bytes]]:
    """Split each line of a kernel file into at most three parts. Return [] if the file does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [line.split(between, 2) for line in os.read(fd, 1 << 16).splitlines()]
    except OSError:
        return []  # the control group is being removed
    finally:
        os.close(fd)


def end_left(job_id: str) -> frozenset[int]:
    """Kill the processes in a lost job's control groups. Return the ids of these processes."""
    return _lost_jobs().end_left(job_id)


def explain_lost(lost: LostOwner) -> ExitReport:
    """Return the report for a job whose supervisor died without writing one."""
    return _lost_jobs().explain(lost)


def lost(pid: int, number: int, counted: int | None = None) -> int | None:
    """Close the job after its supervisor was killed, and record the exact cause. This is the guard's last action.

    `pid`: process id of the supervisor.
    `number`: number of the signal.
    `counted`: number of the control group's OOM kills before the run. Return the final code, or None if there is none.
    """
    now = memory_kills() if number == _SIGKILL else None
    out_of_memory = counted is not None and now is not None and now > counted
    return _lost_jobs().close(pid, number, out_of_memory=out_of_memory)


def _lost_jobs() -> LostJobs:
    from holdfast.main.lost_jobs import LostJobs  # imported late: a guard should stay small, and few jobs are lost

    return LostJobs()
