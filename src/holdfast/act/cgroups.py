"""Control groups for workers. They enforce memory limits, they distinguish OOM kills from other SIGKILLs, and they can
kill a whole process tree at once.

Groups are created *below* holdfast's own group, so every limit above (a scheduler's, a container's) still holds, and no
process of another job is moved. On a pure v2 system a group that contains processes cannot delegate controllers.
holdfast then uses the nearest ancestor that can, unless a memory limit is in between. Everything in this module also
works for an ordinary user, who usually may create no group: `missing` and `unlimited` then say why, in one sentence
each.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.lazy_pattern import Lazy
from holdfast.model.cgroups import MemoryGroup, Mount, own_directory, parse_membership, parse_mounts
from holdfast.model.job_spec import Placement
from holdfast.safe_files import small_text

_UNSAFE = Lazy(r"[^A-Za-z0-9_.@-]")
_KILL_ROUNDS = 50
#: A limit of at least this many bytes counts as no limit, because cgroup version 1 shows a number near 2**63 for a
#: group without a limit.
_NO_LIMIT = 1 << 60
_LIMITS = ("memory.max", "memory.high", "pids.max", "cpu.max")


class ControlGroups:
    """The control groups of one job on this machine. `make` finds out which groups the machine allows; `join` creates
    them.
    """

    def __init__(self, job_id: str, *, tracking: Path | None, memory: Path | None, version: int, missing: str) -> None:
        """Use `make` instead of this constructor.

        `tracking`: the v2 group below which the job's groups can be made; None if there is none. `memory`: the group
        below which memory can be limited, of cgroup `version` 1 or 2. `missing`: why groups are not possible, as a
        sentence.
        """
        self._job_id = job_id
        self._tracking = tracking
        self._memory = memory
        self._version = version
        #: The created directories of attempts. Each contains its workers' directories.
        self._made: list[Path] = []
        self._watched: dict[tuple[int, int], MemoryGroup] = {}
        #: The memory groups that contain holdfast: its own group first, then the visible ancestors.
        self.container: tuple[MemoryGroup, ...] = ()
        #: Why this machine allows no control groups, as a sentence; empty if it does.
        self.missing = missing
        #: Which memory limit is not enforced, and why, as a sentence that `join` sets; empty: all limits are enforced.
        self.unlimited = ""

    @classmethod
    def make(cls, job_id: str, *, proc: Path = Path("/proc/self")) -> ControlGroups:
        """Find out which groups this machine allows for the job. Never raises. `proc`: the directory with this
        process's `mountinfo` and `cgroup` files."""
        mounts, membership = _here(proc)
        v2 = own_directory(mounts, membership, "")
        v1 = own_directory(mounts, membership, "memory")
        tracking = Path(v2[1]) if v2 is not None and _usable(Path(v2[1])) else None
        memory, version = None, 2
        if v2 is not None:
            memory = _handing_down(Path(v2[1]), Path(v2[0].point))
        if memory is None and v1 is not None and _usable(Path(v1[1])):
            memory, version = Path(v1[1]), 1
        groups = cls(
            job_id, tracking=tracking, memory=memory, version=version, missing=_missing(v1, v2, tracking, memory)
        )
        groups.container = tuple(_around(v2, 2) if v2 and _counts(v2, "memory.events") else _around(v1, 1))
        return groups

    @property
    def can_limit(self) -> bool:
        """Return whether memory limits can probably be set. Only `join` shows a failure."""
        return self._memory is not None

    @property
    def can_track(self) -> bool:
        """Return whether a v2 group can be created. If so, `kill` ends a whole process tree at once, even one that
        keeps forking.
        """
        return self._tracking is not None

    # --------------------------------------------------------------------- methods for the control groups of one worker

    def join(
        self, placement: Placement, memory_bytes: int | None, attempt: int = 1, *, track: bool = False
    ) -> tuple[Path, ...]:
        """Create the groups of one worker. Return the `cgroup.procs` files to which the worker's process writes `0`
        before its exec.

        Without a memory limit, a group is created only if `track` is set, because a move between groups can take 15 ms.
        Never raises: `unlimited` reports a limit that is not enforced. `memory_bytes`: the memory limit; None: no
        limit.
        """
        joined: list[Path] = []
        if memory_bytes is not None or (track and self._memory is not None):
            joined += self._limited(placement, memory_bytes, attempt)
        if track and self._tracking is not None and not (joined and self._version == 2):
            try:
                joined.append(self._worker_directory(self._tracking, placement, attempt) / "cgroup.procs")
            except OSError as error:
                self.missing = f"No control group could be made in {self._tracking}: {error.strerror}."
        return tuple(joined)

    def _limited(self, placement: Placement, memory_bytes: int | None, attempt: int) -> list[Path]:
        if self._memory is None:
            self.unlimited = self._without_group(f"{placement.role}-{placement.role_rank}")
            return []
        try:
            directory = self._worker_directory(self._memory, placement, attempt)
            if memory_bytes is not None:
                (_limit_v2 if self._version == 2 else _limit_v1)(directory, memory_bytes)
        except OSError as error:
            self.unlimited = (
                f"The memory limit of {placement.role}-{placement.role_rank} is not enforced: "
                f"{error.filename or self._memory} could not be written ({error.strerror})."
            )
            return []
        self._watched[attempt, placement.rank] = MemoryGroup(
            directory=str(directory), version=self._version, rank=placement.rank
        )
        return [directory / "cgroup.procs"]

    def _without_group(self, worker: str) -> str:
        missing = f"{self.missing[:1].lower()}{self.missing[1:]}"
        limits = [found for group in self.container if (found := _limit_of(group)) is not None]
        if limits:
            return (
                f"The memory limit of {worker} is not enforced for it alone: its container's holds, "
                f"{min(limits) >> 20} MiB for all processes there; {missing}"
            )
        return (
            f"The memory limit of {worker} is not enforced: {missing} Start holdfast where its own control group may "
            "be written, or let the scheduler limit the job."
        )

    def _worker_directory(self, under: Path, placement: Placement, attempt: int) -> Path:
        base = under / f"{_prefix(self._job_id)}{attempt}"
        if base not in self._made:
            base.mkdir(exist_ok=True)
            self._made.append(base)
            if under == self._memory and self._version == 2:
                (base / "cgroup.subtree_control").write_text("+memory", encoding="utf-8")
        directory = base / f"{_UNSAFE.sub('_', placement.role)}-{placement.rank}"
        directory.mkdir(exist_ok=True)
        return directory

    def memory_groups(self, attempt: int) -> tuple[MemoryGroup, ...]:
        """Return the memory groups of this attempt's workers. Their counters show OOM kills."""
        return tuple(group for (number, _), group in self._watched.items() if number == attempt)

    # ------------------------------------------------------------- methods that end the processes in the control groups

    def members(self) -> frozenset[int]:
        """Return the pids in the job's control groups. Some may not be descendants of holdfast."""
        return frozenset(pid for base in self._made for pid in _members(base))

    def kill(self) -> None:
        """Send SIGKILL to all processes in the job's control groups. Do not wait for their deaths."""
        for base in self._made:
            _kill(base)

    def remove(self) -> bool:
        """Remove the job's control groups. Return False if some still contain processes; then call this again after
        they are reaped.
        """
        self._made = [base for base in self._made if not _remove(base)]
        return not self._made


def sweep(job_id: str, *, proc: Path = Path("/proc/self")) -> bool:
    """Kill the processes and remove the groups that a killed owner of this job left. Return True when none are left.

    The search covers every mounted hierarchy, because the dead owner may have run in any group. Call this only if the
    job's owner is certainly dead. False means that processes are still dying; then call this again. `proc`: the
    directory with this process's `mountinfo` and `cgroup` files.
    """
    gone = True
    for base in list(_left(job_id, _here(proc)[0])):
        _kill(base)
        gone = _remove(base) and gone
    return gone


def end_left(job_id: str, *, wait_s: float = 1.0, proc: Path = Path("/proc/self")) -> frozenset[int]:
    """Kill processes and remove groups like `sweep`, then wait up to `wait_s` seconds for the processes to die. Return
    the pids of the dead ones.
    """
    bases = list(_left(job_id, _here(proc)[0]))
    watched: dict[int, int] = {}
    for pid in {pid for base in bases for pid in _members(base)} - {os.getpid()}:
        try:
            watched[os.pidfd_open(pid)] = pid
        except OSError:
            pass  # ignore a process that has exited since it was listed
    for base in bases:
        try:
            _kill(base)
        except PermissionError:
            pass  # leave these processes alone, because another user owns the group; the result leaves them out
    dead = frozenset(watched[fd] for fd in _ended(watched, wait_s))
    for fd in watched:
        os.close(fd)
    for base in bases:
        _remove(base)
    return dead


def _ended(pidfds: Iterable[int], wait_s: float) -> list[int]:
    """Return the pidfds whose processes exit within `wait_s` seconds."""
    left, ended = set(pidfds), list[int]()
    until = time.monotonic() + wait_s
    while left and (rest := until - time.monotonic()) > 0:
        ready = select.select(left, [], [], rest)[0]
        ended += ready
        left.difference_update(ready)
    return ended


def _left(job_id: str, mounts: tuple[Mount, ...]) -> Iterator[Path]:
    ours = re.compile(re.escape(_prefix(job_id)) + r"\d+")
    for mount in mounts:
        if mount.version == 1 and "memory" not in mount.controllers:
            continue
        for directory, names, _ in os.walk(mount.point):
            for name in [name for name in names if ours.fullmatch(name)]:
                names.remove(name)
                yield Path(directory) / name


def _prefix(job_id: str) -> str:
    return f"holdfast-{_UNSAFE.sub('_', job_id)}."


def _here(proc: Path) -> tuple[tuple[Mount, ...], dict[str, str]]:
    try:
        mounts = parse_mounts((proc / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
        return mounts, parse_membership((proc / "cgroup").read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return (), {}


def _usable(directory: Path) -> bool:
    """Return whether this process can create groups in the directory, and move its children into them."""
    return os.access(directory, os.W_OK | os.X_OK) and os.access(directory / "cgroup.procs", os.W_OK)


def _handing_down(own: Path, top: Path) -> Path | None:
    """Return the v2 group that can delegate the memory controller to child groups: `own` or an ancestor; None if there
    is none. `own`: the group of this process. `top`: the highest group to try.
    """
    directory = own
    while True:
        if "memory" in small_text(directory / "cgroup.subtree_control").split() and _usable(directory):
            return directory
        if directory == own and _usable(own) and "memory" in small_text(own / "cgroup.controllers").split():
            try:
                (own / "cgroup.subtree_control").write_text("+memory", encoding="utf-8")
                return own
            except OSError:
                # Try the parent, because a group that contains processes cannot delegate controllers.
                pass
        limited = any(small_text(directory / name).split()[:1] not in ([], ["max"]) for name in _LIMITS)
        if directory == top or limited or directory.parent == directory:
            return None  # a worker in a group above this one would escape this group's memory limit
        directory = directory.parent


def _missing(
    v1: tuple[Mount, str] | None, v2: tuple[Mount, str] | None, tracking: Path | None, memory: Path | None
) -> str:
    if memory is not None:
        return ""
    if v1 is None and v2 is None:
        return "No control groups are mounted here (/proc/self/mountinfo)."
    if tracking is not None:
        return (
            f"The memory controller is not available below {tracking}: it is not delegated, or the group holds "
            "other processes."
        )
    where = " and ".join(found[1] for found in (v2, v1) if found is not None)
    return f"Control groups may not be written here ({where})."


def _counts(place: tuple[Mount, str], file: str) -> bool:
    return (Path(place[1]) / file).exists()


def _around(place: tuple[Mount, str] | None, version: int) -> Iterator[MemoryGroup]:
    if place is None:
        return
    directory, top = Path(place[1]), Path(place[0].point)
    while True:
        if (directory / ("memory.events" if version == 2 else "memory.oom_control")).exists():
            yield MemoryGroup(directory=str(directory), version=version, is_top=directory == top)
        if directory == top or directory.parent == directory:
            return
        directory = directory.parent


def _limit_of(group: MemoryGroup) -> int | None:
    """Return the group's memory limit in bytes, or None if the group has no limit."""
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    text = small_text(Path(group.directory) / name)
    return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else None


def _limit_v2(directory: Path, memory_bytes: int) -> None:
    (directory / "memory.max").write_text(str(memory_bytes), encoding="utf-8")
    # Allow no swap. A worker that swaps delays its whole gang; an OOM kill at least has a clear cause.
    _write_if_there(directory / "memory.swap.max", "0")
    # Let the kernel kill the whole group. If it killed one process of a worker, the worker's other processes would wait
    # for ever.
    _write_if_there(directory / "memory.oom.group", "1")


def _limit_v1(directory: Path, memory_bytes: int) -> None:
    (directory / "memory.limit_in_bytes").write_text(str(memory_bytes), encoding="utf-8")
    # This file limits memory plus swap. The same number as the memory limit therefore allows no swap. The file exists
    # only with swap accounting.
    _write_if_there(directory / "memory.memsw.limit_in_bytes", str(memory_bytes))


def _write_if_there(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError:
        pass  # ignore an older kernel, or one without swap accounting; the memory limit itself is in force


def _members(base: Path) -> Iterator[int]:
    for directory, _, _ in os.walk(base):
        yield from (int(word) for word in small_text(Path(directory) / "cgroup.procs").split())


def _kill(base: Path) -> None:
    try:
        (base / "cgroup.kill").write_text("1", encoding="utf-8")
        return
    except OSError:
        pass  # with cgroup v1, or a kernel before 5.14, kill the processes one by one
    me = os.getpid()
    for _ in range(_KILL_ROUNDS):
        # Repeat while the group forks faster than this loop kills. A process with a pending SIGKILL is not counted
        # again.
        fresh = 0
        for pid in _members(base):
            try:
                if pid != me and not _dying(pid):
                    os.kill(pid, signal.SIGKILL)
                    fresh += 1
            except ProcessLookupError:
                pass  # ignore a process that has exited since it was listed
        if not fresh:
            return


def _dying(pid: int) -> bool:
    """Return whether the process has a pending SIGKILL, or is a zombie."""
    pending = 0
    for line in small_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("State:") and line.split()[1] in ("Z", "X"):
            return True
        if line.startswith(("SigPnd:", "ShdPnd:")):
            pending |= int(line.split()[1], 16)
    return bool(pending >> (signal.SIGKILL - 1) & 1)


def _remove(base: Path) -> bool:
    """Remove the group's directory tree, the deepest group first. Return False if a group still contains a live
    process.
    """
    for directory, _, _ in os.walk(base, topdown=False):
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            # Only these two errors go away by themselves; a read-only file system, for example, does not.
            return error.errno not in (errno.EBUSY, errno.ENOTEMPTY)
    return True
