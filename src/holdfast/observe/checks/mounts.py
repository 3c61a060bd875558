"""Checks whether the job's mounts answer and can be written to.

A dead file server blocks each process that accesses it, for ever and even after SIGKILL. So a child process accesses
each mount, and is given up after the time limit.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.children import Child
from holdfast.model.check_interface import AvoidNode, DiagnosisAction, Note, Verdict
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good, temporary
from holdfast.observe.checks.quota import mount_of, unescape
from holdfast.safe_files import small_text

_REMOTE = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "glusterfs", "gpfs", "beegfs", "pvfs2", "orangefs",
        "afs", "9p", "virtiofs", "wekafs",
    )
)  # fmt: skip
_WORDS = {
    errno.ESTALE: "is stale (the server no longer knows it)",
    errno.ENOTCONN: "has lost its server",
    errno.EIO: "fails with input/output errors",
    errno.EHOSTDOWN: "has a server that is down",
    errno.ETIMEDOUT: "has a server that does not answer",
}


class MountsParams(Params, frozen=True, kw_only=True):
    paths: Annotated[
        tuple[str, ...], Meta(description="what the job needs; none: working, state and temporary directory")
    ] = ()
    writable: Annotated[bool, Meta(description="each must be on a file system mounted for writing")] = True
    all: Annotated[bool, Meta(description="every network file system of the machine must answer too")] = False
    wait_s: Annotated[float, Meta(gt=0, le=60, description="how long a mount may take to answer")] = 2.0


class Mounts(BuiltIn):
    name = "mounts"
    question = "Do the mounts that the job needs answer, and are they mounted for writing?"
    cost = "3 ms; the waiting time where a server is dead"
    blame = "storage"
    Params = MountsParams
    lane = "outside"
    retries = 1
    interval_s = 2.0
    running_s = 60.0

    def look(self, context: Context) -> Verdict:
        params: MountsParams = self.params
        paths = params.paths or (context.site.cwd, context.site.home, temporary())
        needed: dict[str, str] = {}
        problems: list[str] = []
        self._grave = bool(params.paths)
        for path in filter(None, paths):
            mount = mount_of(Path(path))
            point = mount[2] if mount else path
            # Test each mount once, but test every path that the user has named.
            needed.setdefault(path if params.paths else point, path)
            if params.writable and mount and "ro" in mount[3].replace(";", ",").split(","):
                problems.append(f"{point} ({mount[1]}) is mounted read-only, and {path} is on it")
        if params.all:
            needed |= {point: point for point in remote_mounts() if point not in needed}
        for point, why in unanswered(list(needed), params.wait_s).items():
            self._grave = True
            behind = f" ({needed[point]} is on it)" if needed[point] != point else ""
            problems.append(f"{point} {why}{behind}")
        if problems:
            return self.bad(
                context,
                problems,
                "See `dmesg` and the file server; remount it (`umount -l`, then `mount`), or take another node.",
            )
        return good(f"{len(needed)} mount{'s answer' if len(needed) != 1 else ' answers'}")

    def failed_actions(self, *args: object, **kwargs: object) -> Sequence[DiagnosisAction]:
        # A read-only mount alone is no failure, because a program may be on a read-only image and write elsewhere.
        return [AvoidNode()] if self._grave else [Note()]


def remote_mounts() -> list[str]:
    """Return the mount points of network and user-space file systems."""
    found = []
    for line in small_text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        if kind in _REMOTE or kind == "fuse" or kind.startswith("fuse."):
            found.append(unescape(fields[4]))
    return found


def unanswered(points: list[str], wait_s: float) -> dict[str, str]:
    """Return the mounts that fail or do not answer, each with its error. All together may take `wait_s` seconds.
    `points`: the paths.
    """
    found: dict[str, str] = {}
    waiting: dict[int, tuple[Child, str]] = {}
    poll = select.poll()
    for point in points:
        pid = os.fork()
        if pid == 0:
            os._exit(touch(point))
        child = Child(pid)
        waiting[child.pidfd] = (child, point)
        poll.register(child.pidfd, select.POLLIN)
    ends = time.monotonic() + wait_s
    while waiting:
        ready = poll.poll(max(0.0, (ends - time.monotonic()) * 1000))
        if not ready:
            break
        for fd, _ in ready:
            child, point = waiting.pop(fd)
            poll.unregister(fd)
            status = child.reap()
            if status != 0:
                found[point] = _WORDS.get(status or 0) or f"cannot be looked at: {os.strerror(max(status or 0, 0))}"
    for child, point in waiting.values():
        child.end(wait_s=0.0)
        found[point] = f"has not answered within {wait_s:g} s"
    return found


def touch(point: str) -> int:
    """Access a mount, and return the errno, or 0. This may block for ever."""
    try:
        os.statvfs(point)
        os.stat(point)  # noqa: PTH116 - the system call itself is the test
        with os.scandir(point) as entries:
            next(entries, None)
    except FileNotFoundError:
        return 0  # no error, because the job will create this directory
    except PermissionError:
        return 0  # no error, because the server answers
    except NotADirectoryError:
        return 0
    except OSError as error:
        return error.errno or 255
    return 0
