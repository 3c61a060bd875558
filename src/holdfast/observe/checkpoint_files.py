"""Finds checkpoints that workers write, by their open files in /proc/PID/fd. It never searches directories.

A scan sees only the files that are open at that moment. A file counts as finished if it was open for writing at the
last scan and is closed now, if every process that had it open is still alive, and if it exists and is not empty.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.lazy_pattern import Lazy
from holdfast.observe.procfs import state, tree

#: One scan reads at most this many processes.
MOST_PROCESSES = 256
#: At most this many open files are remembered, and at most this many finished files are reported.
MOST_FILES = 64

#: Matches a checkpoint by the last three parts of its path.
_IS_ONE = Lazy(
    r"(?i)\.(?:pth?|ckpt|safetensors|bin|distcp|np[yz]|pkl|pickle|h5|hdf5|keras|tar|msgpack|params|pdparams|pdopt)(?:$|[.~_-])"
    r"|check_?point|ckpt|snapshot|weights|(?:model|optim|optimizer)_states?\b|(?:^|/)(?:global_?)?(?:step|epoch|iter)[_=-]?\d"
)
_IS_NONE = Lazy(
    r"(?i)tfevents|(?:^|/)(?:wandb|mlruns|__pycache__|\.cache|\.triton|torchinductor[^/]*)/"
    r"|\.(?:log|out|err|txt|csv|jsonl?|ya?ml|lock|pid|pyc?|so|o|c|cpp|cu|html|png|jpe?g|arrow|parquet)$"
)
_UNFINISHED = Lazy(r"(?i)(?:\.(?:tmp|temp|part|partial|incomplete|writing|inprogress)(?:[.-]?\w+)?|~)$")
_TEMPORARY = Lazy(r"(?i)^(?:\.?tmp[._-]|\.)")


class _OpenFile(NamedTuple):
    path: str
    holders: frozenset[int]


class CheckpointWatch:
    """Watches the checkpoints of one attempt. `ours`: holdfast's own directories, whose files are ignored."""

    def __init__(self, ours: Iterable[str] = ()) -> None:
        self._ours = tuple(f"{directory.rstrip('/')}/" for directory in ours)
        self._open: dict[tuple[int, int], _OpenFile] = {}
        self.finished: list[str] = []

    @property
    def waits(self) -> bool:
        """Return whether a checkpoint was open for writing at the last scan."""
        return bool(self._open)

    def look(self, pids: Iterable[int]) -> None:
        """Scan the open files of these processes and their descendants. Skip a process that exits meanwhile."""
        now: dict[tuple[int, int], _OpenFile] = {}
        for pid in self._processes(pids):
            for key, path in self._written_by(pid):
                known = now.get(key)
                holders = frozenset({pid}) if known is None else known.holders | {pid}
                if known is not None or len(now) < MOST_FILES:
                    now[key] = _OpenFile(path, holders)
        for key, was in self._open.items():
            # Count a file as finished only if its writer lives, because the kernel also closes the incomplete files of
            # a dying process.
            if key not in now and all(state(pid) not in ("", "Z", "X") for pid in was.holders):
                path = _finished(was.path, key)
                if path and path not in self.finished and len(self.finished) < MOST_FILES:
                    self.finished.append(path)
        self._open = now

    def _processes(self, pids: Iterable[int]) -> Iterator[int]:
        left = MOST_PROCESSES
        for top in pids:
            for pid in tree(top, limit=left):
                yield pid
                left -= 1
            if left <= 0:
                return

    def _written_by(self, pid: int) -> Iterator[tuple[tuple[int, int], str]]:
        """Yield (device, inode) and path of each checkpoint that the process has open for writing."""
        base = f"/proc/{pid}/fd"
        try:
            names = os.listdir(base)  # noqa: PTH208 only the names are needed
        except OSError:
            return
        for name in names:
            link = f"{base}/{name}"
            try:
                path = os.readlink(link)  # noqa: PTH115 faster: there may be thousands
                if not self._may_be_one(path) or not os.lstat(link).st_mode & stat.S_IWUSR:
                    continue
                found = os.stat(link)  # noqa: PTH116 as above
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and found.st_nlink:
                yield (found.st_dev, found.st_ino), path

    def _may_be_one(self, path: str) -> bool:
        if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/sys/", *self._ours)):
            return False
        end = "/".join(path.split("/")[-3:])
        return not _IS_NONE.search(end) and _IS_ONE.search(end) is not None


def _finished(path: str, key: tuple[int, int]) -> str:
    """Return the file's path, under its old or its final name, if the file is not empty; else ""."""
    for name in _names(path):
        try:
            found = os.stat(name)  # noqa: PTH116 the path is a string
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == key and stat.S_ISREG(found.st_mode) and found.st_size:
            return name
    return ""


def _names(path: str) -> Iterator[str]:
    """Yield the path and its possible final names: `x.pt` for `x.pt.tmp`, `checkpoint-5/x` for `tmp-checkpoint-5/x`."""
    yield path
    directory, _, name = path.rpartition("/")
    above, _, parent = directory.rpartition("/")
    directories = {directory: None, f"{above}/{_plain(parent)}": None}
    for place in directories:
        for other in {name: None, _plain(name): None}:
            if (found := f"{place}/{other}") != path:
                yield found


def _plain(name: str) -> str:
    """Return the name without the mark of an unfinished file (a prefix or suffix)."""
    return _TEMPORARY.sub("", _UNFINISHED.sub("", name)) or name
