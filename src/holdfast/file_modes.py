"""File modes: only the user can read holdfast's files; workers and the user's own files get the user's umask."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # as in typing, whose import costs a start more than all else here
if TYPE_CHECKING:
    from pathlib import Path  # the guard, which lives as long as the job, gets by without it

PRIVATE_UMASK = 0o077
_users: int | None = None


def keep_private() -> None:
    """From now on files that this process makes are 0600 and directories 0700, under any umask."""
    global _users  # the umask itself belongs to the whole process, and what it was has no other place
    before = os.umask(PRIVATE_UMASK)
    if _users is None:
        _users = before


def users_umask() -> int:
    """The umask that the user started holdfast with."""
    if _users is None:
        os.umask(now := os.umask(PRIVATE_UMASK))
        return now
    return _users


def distrust(directory: Path) -> str:
    """Why nothing in `directory` may be trusted, with the command that mends it; empty where all is well or missing.

    Another user who can write there can put a configuration, a plugin or a database of their own into it. What lies
    above it is not looked at: in a sticky directory such as /tmp others can make files, but not replace this one.
    """
    try:
        found = directory.stat()
    except OSError:
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return f"{directory} belongs to another user (uid {found.st_uid}): set HOLDFAST_HOME to a directory of your own"
    return _open(directory, found.st_mode)


def open_to_others(directory: Path) -> str:
    """Why another user can write to a directory of this user's, with the command that mends it; empty elsewhere.

    For verbs that look into a state directory: whose it is, they say themselves, and reading another user's is no harm.
    """
    try:
        found = directory.stat()
    except OSError:
        return ""
    return _open(directory, found.st_mode) if found.st_uid == os.geteuid() else ""


def _open(directory: Path, mode: int) -> str:
    if not mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    who = "everyone" if mode & stat.S_IWOTH else "its group"
    return f"{who} can write to {directory} (mode {stat.S_IMODE(mode):04o}): type `chmod 700 {directory}`"


def take_over(directory: Path) -> None:
    """Close a freshly mounted, empty home (mode 1777) to other users."""
    try:
        found = directory.stat()
        fresh = found.st_mode & stat.S_ISVTX and found.st_uid == os.geteuid()
        if fresh and set(os.listdir(directory)) <= {"lost+found"} and os.path.ismount(directory):  # noqa: PTH208 - pathlib is not here
            directory.chmod(0o700)
    except OSError:
        return  # `distrust` says what is wrong with it


def tighten(directory: Path) -> None:
    """Make a state directory of this user's 0700. A general one (the user's home directory) stays as it is."""
    try:
        found = directory.stat()
        if found.st_uid != os.geteuid() or not found.st_mode & 0o077 or found.st_mode & stat.S_ISVTX:
            return
        general = {os.path.realpath(place) for place in (os.path.expanduser("~"), os.getcwd(), "/")}  # noqa: PTH109, PTH111 - as above
        if os.path.realpath(directory) not in general:
            directory.chmod(0o700)
    except OSError:
        return  # the files in it are 0600 all the same
