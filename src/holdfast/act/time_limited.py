"""Runs file operations with a time limit, because they may block for ever on a pipe without a reader or on a dead
network mount.

A process cannot interrupt its own system call on a dead mount. So a child process makes the call, and this process
waits for a limited time.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable

from holdfast.children import Child

WITHIN_S = 10.0

_STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_given_up: set[int] = set()


def given_up() -> frozenset[int]:
    """Return the pids of children that missed their time limit. On a dead mount they may block even after SIGKILL, so
    nothing waits for them.
    """
    return frozenset(_given_up)


def within(work: Callable[[], object], *, keep: int = -1, seconds: float = WITHIN_S) -> None:
    """Run `work` in a child process and wait for it. Raises the OSError that `work` raised, or ETIMEDOUT after
    `seconds`.

    `keep`: the only descriptor that stays open in the child, because a blocked child would keep it open for long.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(work, writer, keep)
    child = Child(pid)
    os.close(writer)
    try:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        if not poll.poll(seconds * 1000):
            child.end(wait_s=0.0)
            _given_up.add(pid)
            raise OSError(errno.ETIMEDOUT, f"nothing was taken there within {seconds:g} s")
        said = os.read(reader, 4096)
    finally:
        os.close(reader)
    child.reap()
    number, _, words = said.decode("utf-8", "replace").partition(" ")
    if number != "0":
        raise OSError(int(number or errno.EIO), words or "the child that wrote it was killed")


def descriptor_of(path: str | os.PathLike[str]) -> int:
    """Return the descriptor that `/dev/fd/63`, `/proc/self/fd/63` or `/dev/stdout` names, or -1 for any other path."""
    if (standard := _STANDARD.get(os.fspath(path), -1)) >= 0:
        return standard
    head, _, number = os.fspath(path).rpartition("/")
    named = head in ("/dev/fd", "/proc/self/fd") and number.isascii() and number.isdigit()
    return int(number) if named else -1


def _child(work: Callable[[], object], writer: int, keep: int) -> None:
    """Run `work`, write the result to `writer`, and exit. Close all other descriptors first, because a child that
    cannot be killed would keep the owner's lock and sockets open.
    """
    said = f"{errno.EIO} a bug of holdfast"
    try:
        last = 0
        for fd in sorted({writer, keep} - {-1}):
            os.closerange(last, fd)
            last = fd + 1
        os.closerange(last, os.sysconf("SC_OPEN_MAX"))
        work()
        said = "0"
    except OSError as error:
        said = f"{error.errno or errno.EIO} {error.strerror or error}"
    except Exception as error:  # holdfast has a bug: report it to the parent, which raises an OSError
        said = f"{errno.EIO} a bug of holdfast: {type(error).__name__}: {error}"
    finally:
        os.write(writer, said.encode()[:4000])
        os._exit(0)
