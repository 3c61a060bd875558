"""The modes of new files: only the user can read holdfast's files; workers, and files that the user names, get the
user's umask."""

from __future__ import annotations

import os
import stat

from holdfast.safe_directories import planted_link

TYPE_CHECKING = False  # importing `typing` would take longer than loading the rest of this module
if TYPE_CHECKING:
    from pathlib import Path  # only for types: the guard runs as long as the job, and must not load pathlib

PRIVATE_UMASK = 0o077
_users: int | None = None


def keep_private() -> None:
    """Make new files of this process 0600 and new directories 0700, whatever the umask is."""
    global _users  # the umask belongs to the whole process, so a global variable stores the previous one
    before = os.umask(PRIVATE_UMASK)
    if _users is None:
        _users = before


def users_umask() -> int:
    """Return the umask with which the user started holdfast."""
    if _users is None:
        os.umask(now := os.umask(PRIVATE_UMASK))
        return now
    return _users


def distrust(directory: Path) -> str:
    """Return why `directory` must not be trusted, with the command that repairs it; empty if it is safe or missing.

    Another user who can write to it can put a configuration, a plugin or a database into it. Among the parents only
    links are checked: in a sticky directory such as /tmp other users cannot replace the directory, and users share
    other parents on purpose.
    """
    if link := planted_link(directory):
        return f"{link} is a link that another user has made: set HOLDFAST_HOME to a directory of your own"
    try:
        found = directory.stat()
    except OSError:
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return f"{directory} belongs to another user (uid {found.st_uid}): set HOLDFAST_HOME to a directory of your own"
    return _open(directory, found.st_mode)


def open_to_others(directory: Path) -> str:
    """Return why other users can write to a directory of this user, with the command that repairs it; else empty.

    Verbs that only read a state directory use this function. Reading another user's directory is harmless, and these
    verbs name its owner.
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
    """Make an empty home that was just mounted (mode 1777) inaccessible to other users."""
    try:
        found = directory.stat()
        fresh = found.st_mode & stat.S_ISVTX and found.st_uid == os.geteuid()
        if fresh and set(os.listdir(directory)) <= {"lost+found"} and os.path.ismount(directory):  # noqa: PTH208 - pathlib is not loaded
            directory.chmod(0o700)
    except OSError:
        return  # `distrust` will report the problem


def tighten(directory: Path) -> None:
    """Set the mode of this user's state directory to 0700.

    A directory with other uses (the user's home directory) stays unchanged.
    """
    try:
        found = directory.stat()
        if found.st_uid != os.geteuid() or not found.st_mode & 0o077 or found.st_mode & stat.S_ISVTX:
            return
        general = {os.path.realpath(place) for place in (os.path.expanduser("~"), os.getcwd(), "/")}  # noqa: PTH109, PTH111 - pathlib is not loaded
        if os.path.realpath(directory) not in general:
            directory.chmod(0o700)
    except OSError:
        return  # the files in it are 0600 anyway
