"""Handles leftover processes, which a rank leaves running when it ends: an upload, a `tee`, a filter of `exec > >(…)`.

Leftover processes get time to exit before holdfast signals them. A filter reads another process's output and exits
after it has copied all of it, so it is signalled last. Helpers of a failed rank (forks, processes of multiprocessing)
have nothing to finish, so they get no time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from holdfast.act.linux import dispositions, executable, is_dying, is_unchanged_fork, pipe_at
from holdfast.model.evidence import Leftover

#: Seconds that a filter (a process such as `tee` that reads another's output) may take to exit after its last writer.
FILTER_S = 5.0
#: Limit on the characters of a command in a message.
MOST_CHARACTERS = 120
#: The variable of a worker's environment that names the worker's log directory.
_DIRECTORY = b"HOLDFAST_LOGS="
SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "busybox", "yash"})


class _Found(msgspec.Struct):
    """A process that outlived its rank (a leftover process)."""

    #: Since when holdfast waits for this process to exit.
    since: float
    rank: int | None
    command: str
    is_filter: bool
    #: True for a helper of a rank that failed.
    is_helper: bool
    signalled_at: float | None = None
    killed: bool = False


class Leftovers:
    """The processes that the ended ranks of one attempt left running."""

    def __init__(self) -> None:
        self._ranks: dict[bytes, int] = {}
        #: Rank → the time of its end, and whether its status was 0.
        self._ended: dict[int, tuple[float, bool]] = {}
        self._found: dict[int, _Found] = {}
        self._wait_s: float | None = None
        self._stdin = pipe_at(os.getpid(), 0)

    def begin_anew(self) -> None:
        """Forget all leftover processes, because another attempt begins."""
        self._ranks.clear()
        self._ended.clear()
        self._found.clear()
        self._wait_s = None

    def rank_ended(self, rank: int, directory: Path, now: float, *, ok: bool) -> None:
        """Record the end of a rank. `directory`: the rank's log directory; the environment of its processes contains
        it. `ok`: the rank's exit status was 0.
        """
        self._ranks[os.fsencode(directory)] = rank
        self._ended[rank] = now, ok

    def allow(self, wait_s: float | None) -> None:
        """Set how many seconds leftover processes may take to exit. None: they are signalled at once and without a
        message.
        """
        self._wait_s = wait_s

    def take_due(self, pids: Iterable[int], alive: Callable[[], Collection[int]], now: float) -> list[int]:
        """Return the processes among `pids` that must be signalled now, because their time is over.

        `alive()`: returns the pids of all processes of the job. A filter is spared while one of them writes to it.
        """
        due = []
        for pid in pids:
            found = self._found.get(pid)
            if is_dying(pid):
                if found is not None and found.signalled_at is None:
                    del self._found[pid]  # forget this process, because it is exiting already
                continue
            if found is None:
                found = self._found[pid] = self._look(pid, now)
            if found.signalled_at is not None or now < self._due(found):
                continue
            if found.is_filter and pid in filters([pid], alive()):
                found.since = now
                continue
            found.signalled_at = now
            due.append(pid)
        return due

    def kill(self, pids: Iterable[int], now: float) -> None:
        """Record that these processes were sent SIGKILL."""
        for pid in pids:
            found = self._found.get(pid)
            if found is not None:
                found.killed = True
                found.signalled_at = found.signalled_at or now

    def next_wake(self) -> float | None:
        """Return when the next leftover process must be signalled; None if none waits."""
        return min((self._due(found) for found in self._found.values() if found.signalled_at is None), default=None)

    @property
    def wait_s(self) -> float:
        """Return the seconds that leftover processes may take to exit."""
        return self._wait_s or 0.0

    def waits_since(self) -> float | None:
        """Return since when the attempt's end waits for a leftover process; None if it waits for none. Helpers do not
        count.
        """
        waits = [one.since for one in self._found.values() if one.signalled_at is None and self._counts(one)]
        return min(waits, default=None)

    def waiting(self, now: float) -> tuple[Leftover, ...]:
        """Return the leftover processes that delay the attempt's end."""
        return tuple(
            Leftover(rank=one.rank, pid=pid, command=one.command, after_s=self._after_s(one, now))
            for pid, one in self._found.items()
            if one.signalled_at is None and self._counts(one)
        )

    def forget(self, pids: Collection[int]) -> None:
        """Forget the leftover processes that have exited. `pids`: the processes that still run."""
        for pid in [pid for pid, found in self._found.items() if pid not in pids and found.signalled_at is None]:
            del self._found[pid]

    def ended_by_force(self) -> tuple[Leftover, ...]:
        """Return the leftover processes that were signalled, because they did not exit in time."""
        return tuple(
            Leftover(
                rank=found.rank,
                pid=pid,
                command=found.command,
                after_s=self._after_s(found, found.signalled_at),
                killed=found.killed,
            )
            for pid, found in self._found.items()
            if found.signalled_at is not None and (found.is_filter or self._counts(found))
        )

    def _counts(self, found: _Found) -> bool:
        return self._wait_s is not None and not found.is_helper

    def _after_s(self, found: _Found, at: float) -> float | None:
        return None if found.rank is None else max(0.0, at - self._ended[found.rank][0])

    def _due(self, found: _Found) -> float:
        wait_s = self._wait_s if self._wait_s is not None and not found.is_helper else 0.0
        return found.since + (max(wait_s, FILTER_S) if found.is_filter else wait_s)

    def _look(self, pid: int, now: float) -> _Found:
        rank = self._ranks.get(_directory(pid))
        failed = rank is not None and not self._ended[rank][1]
        is_helper = failed and _is_helper(pid)
        stdin = pipe_at(pid, 0)
        is_filter = bool(stdin) and stdin != self._stdin and not is_helper
        return _Found(now, rank, _command(pid), is_filter, is_helper)


def filters(pids: Sequence[int], others: Collection[int], number: int = signal.SIGTERM) -> frozenset[int]:
    """Return the filters among `pids`: they read from a pipe to which another process writes, and have no handler for
    the signal.

    `others`: the processes that may write. A trainer that reads a pipe and saves on the signal is no filter. `number`:
    the signal.
    """
    read = {pid: pipe for pid in pids if (pipe := pipe_at(pid, 0))}
    if not read:
        return frozenset()
    written: dict[str, set[int]] = {}
    for pid in others:
        for fd in (1, 2):
            if pipe := pipe_at(pid, fd):
                written.setdefault(pipe, set()).add(pid)
    # Every Python catches SIGINT, even in a program that only copies lines. So do not count a SIGINT handler.
    asks = {signal.SIGTERM, number} - {signal.SIGINT}
    return frozenset(
        pid
        for pid, pipe in read.items()
        if written.get(pipe, set()) - {pid} and asks.isdisjoint(dispositions(pid).caught)
    )


def _is_helper(pid: int) -> bool:
    if is_unchanged_fork(pid):
        # Not a filter: the fork of a shell may be a group of commands, such as `( sleep 4; aws s3 cp … ) &`.
        return executable(pid) not in SHELLS
    return b"multiprocessing" in _read(pid, "cmdline")


def _directory(pid: int) -> bytes:
    """Return the log directory of the rank that started this process, or b"" if it is unknown."""
    environment = _read(pid, "environ").split(b"\0")
    return next((item.removeprefix(_DIRECTORY) for item in environment if item.startswith(_DIRECTORY)), b"")


def _command(pid: int) -> str:
    text = " ".join(_read(pid, "cmdline").decode(errors="replace").replace("\0", " ").split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 2]} …"


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # the process has exited, or this user may not read it
