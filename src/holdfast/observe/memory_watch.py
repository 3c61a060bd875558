"""Distinguishes OOM kills from other SIGKILLs.

There are three sources: the counters of a worker's control group, the counters of holdfast's group, and the kernel's
log. The counters show that a kill happened, and in which group. The log shows the process and its size. All findings
about one rank count as one kill.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.lazy_pattern import Lazy
from holdfast.model.cgroups import MemoryGroup, limit_in_words
from holdfast.model.evidence import MemoryKill
from holdfast.model.exit_report import Evidence
from holdfast.model.noun_base import Noun
from holdfast.observe.kernel_log import KernelLog
from holdfast.safe_files import small_text

#: The inode of /proc/self/ns/pid outside of containers, which is the kernel's constant PROC_PID_INIT_INO.
_INIT_PID_NAMESPACE = 0xEFFFFFFC
#: A limit of at least this many bytes counts as no limit, because cgroup v1 shows a number near 2^63 without a limit.
_NO_LIMIT_BYTES = 1 << 60
#: A group counts as full if its peak memory is at least this share of its limit.
_FULL = 0.98

_LOG = "kernel log"

_KILLED = Lazy(
    r"Killed process (?P<pid>\d+)(?:, UID \d+,)? \((?P<name>.*?)\),? total-vm:\d+kB"
    r"(?:, anon-rss:(?P<anon>\d+)kB)?(?:, file-rss:(?P<file>\d+)kB)?(?:, shmem-rss:(?P<shmem>\d+)kB)?"
    r"(?:, UID:(?P<uid>\d+))?"
)
_WHY = Lazy(r"oom-kill:constraint=(?P<constraint>\w+),.*?\btask=(?P<name>.*),pid=(?P<pid>\d+)")
_LIMITED_GROUP = Lazy(r"\boom_memcg=([^,]+)")
_TASK_GROUP = Lazy(r"\btask_memcg=([^,]+)")
#: Matches the path of a control group that holdfast has created for a worker of any job.
_OTHER_JOB = Lazy(r"/holdfast-[^/]+\.\d+/[^/]+$")


class _Counts(Noun, frozen=True, kw_only=True):
    """The present values in the files of one control group."""

    killed: int = 0
    #: In cgroup v2: how often the group reached its limit and nothing could be reclaimed.
    exhausted: int = 0
    #: In cgroup v1: how often the group reached its limit, which page cache alone can cause.
    refused: int = 0
    limit_bytes: int | None = None
    peak_bytes: int | None = None

    def full_since(self, before: _Counts) -> bool:
        """Return whether the group has exhausted its memory limit since `before` was read."""
        near = bool(self.limit_bytes and self.peak_bytes and self.peak_bytes >= _FULL * self.limit_bytes)
        if self.exhausted or self.refused:
            return self.exhausted > before.exhausted or (near and self.refused > before.refused)
        return near


class _Full(Noun, frozen=True, kw_only=True):
    """A control group around holdfast that has reached its memory limit."""

    counts: _Counts
    limited_by: str


class MemoryWatch:
    """Finds OOM kills since `mark()`. It reads files only on a call, and never raises."""

    def __init__(
        self,
        container: Sequence[MemoryGroup] = (),
        kernel: KernelLog | None = None,
        *,
        pids_are_ours: bool | None = None,
        uid: int | None = None,
        marked: bool = True,
    ) -> None:
        """Create the watch.

        `container`: the memory groups around holdfast, the innermost first. `kernel`: the kernel's log, if it is read.
        `pids_are_ours`: whether the log's pids are those of this pid namespace; None: find out. `uid`: the user of the
        workers; None: find out. `marked`: count kills from now on; otherwise from the groups' creation.
        """
        self._container = tuple(container)
        self._kernel = kernel
        # In a container the log has the host's pids, which differ from the container's.
        self._pids_are_ours = _outside_of_containers() if pids_are_ours is None else pids_are_ours
        # Compare the user id: the kernel's log also has kills of other containers on the machine, which often belong to
        # other users.
        self._uid = _user_of_the_kernel() if uid is None else uid
        self._before: dict[str, _Counts] = {}
        if marked:
            self.mark()

    def mark(self) -> None:
        """From now on count only new OOM kills of the control groups around holdfast, because an attempt starts."""
        self._before = {group.directory: _read_counts(group) for group in self._container}

    def kills(
        self, pids_by_rank: Mapping[int, Collection[int]], since: float, workers: Iterable[MemoryGroup] = ()
    ) -> tuple[MemoryKill, ...]:
        """Return the OOM kills since `since` (seconds since the epoch), those of known ranks first.

        `pids_by_rank`: all known pids of each rank, with descendants, because a killed data loader worker counts for
        its rank. `workers`: the groups of the attempt's workers; they must still exist.
        """
        groups = tuple(workers)
        logged, strangers = self._logged(pids_by_rank, since, groups)
        kills: list[MemoryKill] = []
        counted = 0
        for group in groups:
            counts = _read_counts(group)
            counted += counts.killed if group.version == 2 else 0
            if counts.killed:
                kills.append(_merged(self._of_worker(group, counts), logged))
        if logged:
            kills += [self._by_limit_around(kill) if kill.scope == "container" else kill for kill in logged]
        elif not kills and (in_container := self._of_container(counted, strangers)) is not None:
            kills.append(in_container)
        return tuple(sorted(kills, key=lambda kill: (kill.rank is None, kill.at is None, kill.at or 0.0)))

    # ----------------------------------------------------------------- methods that read the counters of control groups

    def _of_worker(self, group: MemoryGroup, counts: _Counts) -> MemoryKill:
        """Return the OOM kill in a worker's control group, with the limit that caused it.

        The group's counter also rises for kills by the limits of other groups, so find out whether this group was full.
        `counts`: the present values of the group's files.
        """
        full = counts.full_since(_Counts())
        kill = MemoryKill(
            source=_source(group),
            text=f"oom_kill {counts.killed} in {group.directory}",
            rank=group.rank,
            limit_bytes=counts.limit_bytes if full else None,
            peak_bytes=counts.peak_bytes,
            scope="worker" if full else "host",
        )
        return kill if full else self._by_limit_around(kill)

    def _by_limit_around(self, kill: MemoryKill) -> MemoryKill:
        """Add the limit of a control group around holdfast to the OOM kill, if that limit was reached."""
        full = self._full_container()
        if full is None:
            return kill
        return replace(
            kill,
            limit_bytes=full.counts.limit_bytes,
            peak_bytes=full.counts.peak_bytes,
            scope="container",
            limited_by=full.limited_by,
        )

    def _full_container(self) -> _Full | None:
        """Return the innermost control group around holdfast that has reached its memory limit since `mark()`, or
        None.
        """
        for group in self._container:
            now = _read_counts(group)
            if now.full_since(self._before.get(group.directory, _Counts())):
                return _Full(counts=now, limited_by="" if group.is_top else limit_in_words(group.directory))
        return None

    def _of_container(self, counted: int, strangers: int) -> MemoryKill | None:
        """Return an OOM kill of an unknown process: a group around holdfast has counted it, but no worker's group has.
        Return None if there is none.

        `counted`: the kills of workers' groups, because v2 counts them in the groups above too. `strangers`: the kills
        of other processes in the log.
        """
        for group in self._container:
            now, before = _read_counts(group), self._before.get(group.directory, _Counts())
            killed = now.killed - before.killed - strangers - (counted if group.version == 2 else 0)
            if killed > 0:
                kill = MemoryKill(
                    source=_source(group),
                    text=f"oom_kill rose by {killed} in {group.directory}; the counter names no process",
                    peak_bytes=now.peak_bytes,
                    count=killed,
                )
                return self._by_limit_around(kill)
        return None

    # ------------------------------------------------------------------------------- methods that read the kernel's log

    def _logged(
        self, pids_by_rank: Mapping[int, Collection[int]], since: float, groups: Sequence[MemoryGroup]
    ) -> tuple[list[MemoryKill], int]:
        """Return the OOM kills in the kernel's log that may be the job's, and the number of the others."""
        if self._kernel is None:
            return [], 0
        ranks = {pid: rank for rank, pids in pids_by_rank.items() for pid in pids}
        found: list[MemoryKill] = []
        strangers = 0
        reasons: dict[int, Evidence] = {}
        for line in self._kernel.lines(since):
            if reason := _WHY.search(line.text):
                reasons[int(reason["pid"])] = line
            killed = _KILLED.search(line.text)
            if killed is None:
                continue
            pid = int(killed["pid"])
            why = reasons.get(pid)
            task, limited = _groups_named(why.text if why else "")
            mine = next((group for group in groups if _is(group, task)), None)
            rank = mine.rank if mine is not None else ranks.get(pid) if self._pids_are_ours else None
            others = killed["uid"] is not None and self._uid is not None and int(killed["uid"]) != self._uid
            if rank is None and (self._pids_are_ours or others or _OTHER_JOB.search(task)):
                strangers += 1
                continue
            parts = [killed[name] for name in ("anon", "file", "shmem") if killed[name]]
            scope = "container" if limited or line.text.startswith("Memory cgroup") else "host"
            found.append(
                MemoryKill(
                    source=_LOG,
                    text=line.text,
                    rank=rank,
                    pid=pid if self._pids_are_ours else None,
                    rss_bytes=sum(int(part) for part in parts) * 1024 if parts else None,
                    at=line.at,
                    scope="worker" if any(_is(group, limited) for group in groups) else scope,
                )
            )
        return found, strangers


def _groups_named(text: str) -> tuple[str, str]:
    task, limited = _TASK_GROUP.search(text), _LIMITED_GROUP.search(text)
    return (task[1] if task else ""), (limited[1] if limited else "")


def _is(group: MemoryGroup, path: str) -> bool:
    """Return whether a path in the kernel's log is this control group.

    Such a path has another root, so only the last two names are compared.
    """
    return bool(path) and Path(path).parts[-2:] == Path(group.directory).parts[-2:]


def _merged(kill: MemoryKill, logged: list[MemoryKill]) -> MemoryKill:
    """Add the details in the log's entry for the same rank to an OOM kill by counter. Remove the entry from
    `logged`.
    """
    same = next((line for line in logged if line.rank == kill.rank), None)
    if same is None:
        return kill
    logged[:] = [line for line in logged if line.rank != kill.rank]
    scope = same.scope if same.scope == "worker" else kill.scope
    return replace(
        kill, pid=same.pid, rss_bytes=same.rss_bytes, at=same.at, scope=scope, text=f"{kill.text}; {same.text}"
    )


def _source(group: MemoryGroup) -> str:
    return "cgroup v2 memory.events" if group.version == 2 else "cgroup v1 memory.oom_control"


def _read_counts(group: MemoryGroup) -> _Counts:
    base = Path(group.directory)
    if group.version == 2:
        events = _table(base / "memory.events")
        return _Counts(
            killed=events.get("oom_kill", 0),
            exhausted=events.get("oom", 0),
            limit_bytes=_number(base / "memory.max"),
            peak_bytes=_number(base / "memory.peak"),
        )
    return _Counts(
        killed=_table(base / "memory.oom_control").get("oom_kill", 0),
        refused=_number(base / "memory.failcnt") or 0,
        limit_bytes=_number(base / "memory.limit_in_bytes"),
        peak_bytes=_number(base / "memory.max_usage_in_bytes"),
    )


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in small_text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    text = small_text(path)
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None


def _user_of_the_kernel() -> int | None:
    """Return this process's user as the kernel's log shows it; None in a user namespace, where numbers differ."""
    try:
        mapping = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        return None
    return os.getuid() if mapping[:2] == ["0", "0"] else None


def _outside_of_containers() -> bool:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _INIT_PID_NAMESPACE
    except OSError:
        return False
