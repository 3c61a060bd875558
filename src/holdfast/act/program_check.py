"""Checks whether the operating system can run a worker's program, before the worker may run."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

#: The check reads this many bytes of a program. Linux reads the same number to find the interpreter line.
HEAD_BYTES = 256
BINFMT_MISC = Path("/proc/sys/fs/binfmt_misc")


class InterpreterError(OSError):
    """Raised if a script's interpreter cannot run. `filename`: the interpreter's path in the script's first line."""


def check_program(program: str, env: Mapping[str, str]) -> None:
    """Raise the OSError that `os.execvpe` would raise for this program in the present working directory.

    The function detects a missing file, a file without execute permission, a directory, a script with a missing
    interpreter, and a text file without an interpreter line. It accepts a program for another processor, because the
    kernel may have an emulator.
    """
    if "/" in program:
        _check_file(Path(program))
        return
    denied: OSError | None = None
    for directory in os.get_exec_path(env):
        try:
            _check_file(Path(directory, program))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            denied = denied or error
        else:
            return
    raise denied or _error(errno.ENOENT)


def _check_file(path: Path) -> None:
    _check_mode(path)
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return  # skip the check: this user may execute the program but not read it
    if head.startswith(b"#!"):
        interpreter = os.fsdecode(head[2:].partition(b"\n")[0].strip(b" \t").partition(b" ")[0].partition(b"\t")[0])
        try:
            _check_mode(Path(interpreter))
        except OSError as error:
            raise InterpreterError(error.errno, error.strerror, interpreter) from error
    elif b"\0" not in head and not _has_handlers():
        raise _error(errno.ENOEXEC)


def _check_mode(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode) or not os.access(path, os.X_OK):
        raise _error(errno.EACCES)


def _has_handlers() -> bool:
    """Return whether the kernel has registered programs that run files of other formats (binfmt_misc)."""
    try:
        return not {entry.name for entry in BINFMT_MISC.iterdir()} <= {"register", "status"}
    except OSError:
        return False


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
