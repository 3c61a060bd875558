"""Checks whether the workers may open files and start processes."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good, size
from holdfast.safe_files import small_text


class LimitsParams(Params, frozen=True, kw_only=True):
    min_open_files: Annotated[int, Meta(ge=0, description="open files allowed to each process (ulimit -n)")] = 64
    min_processes: Annotated[int, Meta(ge=0, description="processes and threads that may still be started")] = 16
    min_memlock: Annotated[Bytes, Meta(description="memory that may be locked (ulimit -l); RDMA wants all")] = Bytes(0)


class Limits(BuiltIn):
    name = "limits"
    question = "May the workers open enough files and start enough processes?"
    cost = "3 ms"
    blame = "platform"
    Params = LimitsParams
    retries = 1

    def look(self, context: Context) -> Verdict:
        params: LimitsParams = self.params
        problems: list[str] = []
        figures: dict[str, int] = {}
        for what, limit, asked in (
            ("open files (ulimit -n)", resource.RLIMIT_NOFILE, params.min_open_files),
            ("locked memory (ulimit -l)", resource.RLIMIT_MEMLOCK, params.min_memlock),
        ):
            soft, hard = resource.getrlimit(limit)
            figures[what] = soft
            if soft != resource.RLIM_INFINITY and soft < asked:
                is_size = limit == resource.RLIMIT_MEMLOCK
                shown = [size(value) if is_size else str(value) for value in (soft, asked)]
                more = "" if hard == resource.RLIM_INFINITY or hard >= asked else f" (and the hard limit is {hard})"
                problems.append(f"{what}: {shown[0]} allowed, {shown[1]} asked{more}")
        for what, left in room_for_processes():
            figures[f"{what} left"] = left
            if left < params.min_processes:
                problems.append(f"{what}: room for {left} more processes, {params.min_processes} asked")
        used, _, most = small_text("/proc/sys/fs/file-nr").split() or ("0", "0", "0")
        if int(most) and int(most) - int(used) < params.min_open_files:
            problems.append(f"the machine has {used} of {most} files open")
        if problems:
            return self.bad(
                context,
                problems,
                "Raise the limit (`ulimit`, /etc/security/limits.conf, the container's `--ulimit` or pids limit).",
                figures=figures,
            )
        return good("", figures)


def room_for_processes() -> list[tuple[str, int]]:
    """Return how many more processes and threads each limit allows: the user's, the container's and the machine's."""
    found: list[tuple[str, int]] = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    uid = os.getuid()
    # The user's limit on processes does not apply to root.
    if soft != resource.RLIM_INFINITY and uid != 0:
        mine = 0
        for pid in proc_files.pids():
            try:
                if Path(f"/proc/{pid}").stat().st_uid == uid:
                    mine += int(stat[17]) if len(stat := proc_files.stat(pid)) > 17 else 1
            except FileNotFoundError:
                continue
        found.append(("user processes (ulimit -u)", soft - mine))
    for file in proc_files.cgroup_files("pids", "pids.max"):
        most, now = proc_files.number(file), proc_files.number(file.parent / "pids.current")
        if most is not None and now is not None:
            found.append(("the container's pids limit", most - now))
    running = small_text("/proc/loadavg").split()
    for name in ("threads-max", "pid_max"):
        whole = proc_files.number(f"/proc/sys/kernel/{name}")
        if whole and len(running) > 3:
            found.append((f"kernel.{name}", whole - int(running[3].partition("/")[2])))
    return found
