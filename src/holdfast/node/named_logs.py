"""Finds the logs that a word of `holdfast explain` names: a file, a directory, a glob, an archive, or `ray:DIR`.

Everything is bounded: the number of files and of directories, the depth, and what compressed files unpack to.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy
from holdfast.node.log_source import (
    FIRST_BYTES,
    MOST_ENTRIES,
    MOST_LOGS,
    NO_LOG,
    TAILS_BYTES,
    NamedLog,
    compression_of,
    in_order,
    too_many,
)

#: Limit of the depth of the folders that are looked at.
MOST_DEPTH = 12
_LOG = Lazy(
    r"(?i)(?:^|[._-])(?:log|logs|out|err|stdout|stderr|std|output|console|dmesg|messages|syslog|nohup)"
    r"(?:[._-]?\d+)?(?:\.(?:txt|log|json|gz|bz2|xz|zst))*$|\.log\b"
)
_OF_RAY = "ray:"
_RAY = Lazy(r"^(?:worker-|job-driver-|raylet\.|gcs_server\.|monitor\.)\S*\.(?:err|out|log)$")
_OLDER = Lazy(r"(?P<name>.+)\.\d{1,4}(?:\.(?:gz|bz2|xz|zst))?$")


def logs_of(word: str) -> Iterator[str | NamedLog] | None:
    """Return the logs that an existing path, a glob or `ray:DIR` names; None: `word` is none of these.

    An archive's logs have to be read in the order in which they come. Raise `BadUsage` if there are none, or too many.
    """
    path = Path(word)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        if word.startswith(_OF_RAY):
            return _of_ray(Path(word.removeprefix(_OF_RAY)))
        if os.path.lexists(word) or not glob.has_magic(word):
            return None
        return _of_glob(word)
    if stat.S_ISDIR(mode):
        return _of_directory(path)
    return (_of_archive(path) if stat.S_ISREG(mode) else None) or iter([word])


def _of_archive(path: Path) -> Iterator[str | NamedLog] | None:
    try:
        with path.open("rb") as file:
            first = file.read(FIRST_BYTES)
    except OSError:
        return None  # reading it will say why
    if not (first.startswith(b"PK") or compression_of(first) or first[257:262] == b"ustar"):
        return None
    from holdfast.node.archived_logs import logs_in  # imported here, because few logs are compressed

    return logs_in(path)


def _of_glob(word: str) -> Iterator[str | NamedLog]:
    found = []
    for entry, name in enumerate(glob.iglob(word, recursive=True)):  # noqa: PTH207 - the word may be absolute
        if entry >= MOST_ENTRIES:
            raise too_many(word, MOST_ENTRIES)
        if not Path(name).is_dir():
            found.append(name)
    if not found:
        raise BadUsage(f"no file matches {word}: a log was expected", hint="holdfast explain 'logs/*.log'")
    if len(found) > MOST_LOGS:
        raise too_many(word, MOST_LOGS)
    return iter(_bounded(in_order(found)))


def _of_directory(top: Path) -> Iterator[str | NamedLog]:
    logs: list[str] = []
    others: list[str] = []
    for name in _files_below(top):
        (logs if _LOG.search(Path(name).name) else others).append(name)
    found = [name for name in logs if not NO_LOG.search(name)]
    found = found or [name for name in others if not NO_LOG.search(name) and _is_text(name)]
    known = set(found)
    found = [name for name in found if (older := _OLDER.match(name)) is None or older["name"] not in known]
    if not found:
        raise BadUsage(
            f"the directory {top} has no log: files such as rank0.log, stderr or job.out were expected",
            hint=f"holdfast explain '{top}/*'",
        )
    if len(found) > MOST_LOGS:
        raise too_many(str(top), MOST_LOGS)
    return iter(_bounded(in_order(found)))


def _files_below(top: Path) -> Iterator[str]:
    """Yield the paths of the readable, non-empty regular files below a directory. Links to directories are not
    followed."""
    entries = 0
    queue = [(str(top), 0)]
    while queue:
        folder, depth = queue.pop()
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    entries += 1
                    if entries > MOST_ENTRIES:
                        raise too_many(str(top), MOST_ENTRIES)
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH:
                            queue.append((entry.path, depth + 1))
                    elif entry.is_file() and entry.stat().st_size and os.access(entry.path, os.R_OK):
                        yield entry.path
        except PermissionError:
            if folder == str(top):
                raise BadUsage(f"{top} cannot be read: permission denied", hint=f"ls -ld {top}") from None
        except FileNotFoundError:
            continue  # a folder or a file was removed meanwhile


def _bounded(names: list[str]) -> list[str | NamedLog]:
    tail = max(TAILS_BYTES // max(1, len(names)), 64 << 10)
    if len(names) <= 64:
        return list(names)
    return [_file(name, tail) for name in names]


def _file(name: str, tail: int) -> NamedLog:
    return NamedLog(
        name=name, opened=lambda: Path(name).open("rb"), written_at=Path(name).stat().st_mtime, tail_bytes=tail
    )


def _is_text(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            first = file.read(FIRST_BYTES)
    except OSError:
        return False
    return bool(compression_of(first)) or first.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" not in first


def _of_ray(top: Path) -> Iterator[str | NamedLog]:
    for folder in (top / "session_latest" / "logs", top / "logs", top):
        if folder.is_dir():
            break
    else:
        raise BadUsage(f"ray:{top}: there is no such directory", hint="holdfast explain ray:/tmp/ray")
    with os.scandir(folder) as entries:
        found = [each.path for each in entries if _RAY.match(each.name) and each.is_file() and each.stat().st_size]
    if not found:
        raise BadUsage(
            f"ray:{top}: no logs of Ray in {folder}: files such as worker-*.err were expected",
            hint="holdfast explain ray:/tmp/ray/session_latest",
        )
    # the newest are those of the last failure
    newest = sorted(found, key=os.path.getmtime)[-MOST_LOGS:]
    yield from in_order(newest)
