"""Checks whether the workers have enough host memory, and data-loader workers and collectives enough shared memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good, size, size_of
from holdfast.safe_files import small_text


class MemoryParams(Params, frozen=True, kw_only=True):
    min_free: Annotated[Bytes, Meta(description="memory that must be free on the node")] = Bytes(64_000_000)
    per_worker: Annotated[Bytes, Meta(description="memory that each worker of the node needs")] = Bytes(0)


class Memory(BuiltIn):
    name = "memory"
    question = "Is enough host memory free, of the machine and of this container's limit?"
    cost = "1 ms"
    Params = MemoryParams
    retries = 2
    running_s = 30.0

    def look(self, context: Context) -> Verdict:
        params: MemoryParams = self.params
        asked = max(params.min_free, params.per_worker * context.site.workers)
        rows = dict(line.split(":", 1) for line in small_text("/proc/meminfo").splitlines())
        if "MemAvailable" not in rows:
            return self.unsure(context, "/proc/meminfo does not tell how much memory is available")
        free, whole = (int(rows[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
        where = "memory"
        for left, limit in container_limits():
            if left < free:
                free, whole, where = left, limit, "the container's memory"
        figures = {"free_bytes": free, "total_bytes": whole}
        if free < asked:
            return self.bad(
                context,
                f"{size_of(free, whole)} of {where} free, {size(asked)} asked",
                "Find who holds it (`ps aux --sort -rss | head`): often a process that an earlier job left behind.",
                figures=figures,
            )
        return good(f"{size_of(free, whole)} free", figures)


def container_limits() -> list[tuple[int, int]]:
    """Return (free, limit) in bytes for each memory limit of this process's control groups. Inactive page cache counts
    as free.
    """
    found: list[tuple[int, int]] = []
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for file in proc_files.cgroup_files("memory", limit_name):
            limit, used = proc_files.number(file), proc_files.number(file.parent / used_name)
            # Skip a group without a limit, for which cgroup v1 shows a number near 2^63.
            if limit is None or used is None or limit > 1 << 60:
                continue
            rows = dict(line.split() for line in small_text(file.parent / "memory.stat").splitlines())
            cache = int(rows.get("inactive_file", rows.get("total_inactive_file", 0)))
            found.append((max(0, limit - used + cache), limit))
    return found


class ShmParams(Params, frozen=True, kw_only=True):
    min_free: Annotated[Bytes, Meta(description="shared memory that must be free")] = Bytes(16 << 20)
    path: Annotated[str, Meta(description="where shared memory is mounted")] = "/dev/shm"


class Shm(BuiltIn):
    name = "shm"
    question = "Is there shared memory left for data-loader workers and collectives?"
    cost = "1 ms"
    blame = "platform"
    Params = ShmParams
    retries = 1

    def look(self, context: Context) -> Verdict:
        params: ShmParams = self.params
        if not Path(params.path).is_dir():
            return self.bad(context, f"{params.path} does not exist", "Mount a tmpfs there (`--ipc=host` with Docker).")
        facts = os.statvfs(params.path)
        free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
        figures = {"free_bytes": free, "total_bytes": whole}
        # A tmpfs without a limit reports 0 of 0, so ignore it.
        if whole and free < params.min_free:
            return self.bad(
                context,
                f"{size_of(free, whole)} free on {params.path}, {size(params.min_free)} asked",
                "Make it bigger (`docker run --shm-size`, `emptyDir: {medium: Memory}`), or remove what old jobs left.",
                figures=figures,
            )
        if not os.access(params.path, os.W_OK | os.X_OK):
            return self.bad(context, f"{params.path} is not writable", f"chmod 1777 {params.path}")
        return good(f"{size_of(free, whole)} free" if whole else "no limit", figures)
