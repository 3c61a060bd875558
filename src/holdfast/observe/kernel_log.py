"""Reads the kernel's log of one attempt: OOM kills, device errors, I/O errors, crashes, lost network links.

`/dev/kmsg` is opened at the attempt's start and read without blocking at its end. If it is unreadable (an ordinary user
with `kernel.dmesg_restrict=1`, most containers), `missing` is a sentence about the facts that are then unknown. A log
daemon's file works too.

A record of /dev/kmsg has a time in microseconds of the kernel's clock. Like CLOCK_MONOTONIC, this clock starts at boot
and stops during suspend. So a record's time is `Clock.boot + stamp`, like all times of a run. NTP does not adjust the
kernel's clock, which may drift by some milliseconds a day; `SLACK_S` allows for that.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

from holdfast.clock import Clock
from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import Evidence, EvidenceKind

#: The newest this many lines are kept, so that a flood of errors does not fill the memory.
KEPT = 200
SLACK_S = 2.0
_BLOCK = 8192
_READS = 100_000
_SOURCE = "kernel log"

_INTEREST = Lazy(
    r"(?i)out of memory|oom-kill|oom_reaper|invoked oom-killer"
    r"|NVRM|\bXid\b|fallen off the bus|\bnpu\b|davinci|amdgpu.*(?:reset|fault|timeout)"
    r"|segfault at|\btraps: |general protection|blocked for more than \d+ seconds"
    r"|Machine Check|\bmce: |Hardware Error|\bEDAC\b|\bAER: |thermal.*(?:throttl|shutdown)"
    r"|I/O error|No space left|EXT4-fs error|XFS .*(?:error|shutdown)|Remounting filesystem read-only"
    r"|nfs: server|\bnfs4?: |Link is Down|link down|link is not ready|\bmlx[45]_"
)
_CRASH_PID = Lazy(r"(?i)\[(\d+)\]:? (?:segfault at|general protection|trap )|traps: .*?\[(\d+)\]")
_RECORD = Lazy(r"^(\d+),(\d+),(\d+),[^;]*;(.*)$")
_DMESG = Lazy(r"^\[\s*(\d+\.\d+)\] (.*)$")
_CONTROL = Lazy(r"\\x[0-9a-f]{2}")


class KernelLog:
    """Reads the kernel's messages from now on. Never raises, never blocks. Call `close()` at the end."""

    def __init__(self, path: str | os.PathLike[str] = "/dev/kmsg", clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._boot = (clock or Clock()).boot
        #: Why the log is unreadable and which facts are then unknown, as a sentence; "" if it is readable.
        self.missing = ""
        self._found: deque[Evidence] = deque(maxlen=KEPT)
        self._rest = b""
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._device = stat.S_ISCHR(os.fstat(self._fd).st_mode)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self.missing = (
                f"The kernel log ({self.path}) cannot be read ({error.strerror}): memory kills by the host, "
                "device errors and crashes can then not be told apart by what the kernel wrote."
            )

    def lines(self, since: float, *, pids: frozenset[int] | None = None) -> list[Evidence]:
        """Return the relevant lines from `since` (seconds since the epoch) on, oldest first, at most `KEPT`.

        With `pids`, leave out crashes (`segfault at`, `traps:`) of other processes. A later call returns the earlier
        lines again.
        """
        self._read()
        return [
            line
            for line in self._found
            if (line.at is None or line.at >= since - SLACK_S) and (pids is None or _concerns(line.text, pids))
        ]

    def fileno(self) -> int:
        """Return the fd, which for /dev/kmsg is readable when there is a new message; -1: the log is not open."""
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        if self._fd < 0:
            return
        for _ in range(_READS):
            try:
                block = os.read(self._fd, _BLOCK)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # read on: records were overwritten, and the next read begins at the oldest remaining one
            except OSError:
                return
            if not block:
                return
            # A read of the device returns one record. A read of a file may end in the middle of a line.
            rows = (block if self._device else self._rest + block).split(b"\n")
            self._rest = b"" if self._device else rows.pop()
            for row in rows:
                self._take(row.decode("utf-8", "replace"), self._boot)

    def _take(self, row: str, boot: float) -> None:
        if row.startswith(" "):
            return  # ignore a line of a record's dictionary (SUBSYSTEM=, DEVICE=)
        at: float | None = None
        if record := _RECORD.match(row):
            at, row = boot + int(record[3]) / 1e6, record[4]
        elif printed := _DMESG.match(row):
            at, row = boot + float(printed[1]), printed[2]
        if _INTEREST.search(row):
            self._found.append(
                Evidence(kind=EvidenceKind.KERNEL, text=_CONTROL.sub(" ", row)[:1000], source=_SOURCE, at=at)
            )


def _concerns(text: str, pids: frozenset[int]) -> bool:
    crashed = _CRASH_PID.search(text)
    return crashed is None or int(crashed[1] or crashed[2]) in pids
