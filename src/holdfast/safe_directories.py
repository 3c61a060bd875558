"""Enters directories that another user cannot exchange, and finds out which user could.

A path is entered one name after the other, each through the descriptor of the directory before it. So the directory
that was checked is the directory that is used, even while another user renames directories. No other user can redirect
the path `/proc/self/fd/N`.
"""

from __future__ import annotations

import errno
import os
import stat

_MOST_LINKS = 40


class Exposed(PermissionError):
    """Raised if another user could replace a path. `strerror`: why; `filename`: the path; `remedy`: a command."""

    def __init__(self, why: str, where: str, remedy: str) -> None:
        super().__init__(errno.EPERM, why, where)
        self.remedy = remedy


def is_trusted(uid: int) -> bool:
    """Return whether this user's files are trusted: those of this process's user, of root, and of the owner of `/`.

    In a user namespace root's files, and also `/`, belong to an unknown user.
    """
    return uid in (os.geteuid(), 0) or uid == os.stat("/").st_uid


def writers(found: os.stat_result, *, entries: bool = False) -> str:
    """Return the other users who may rename this user's entries of a directory, as text; "" if there are none.

    In a sticky directory nobody can rename another user's entry. Group 0 counts like root.
    `entries`: also count users who may create entries.
    """
    if found.st_mode & stat.S_ISVTX and not entries:
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "everyone"
    return "its group" if found.st_mode & stat.S_IWGRP and found.st_gid != 0 else ""


def planted_link(path: str | os.PathLike[str]) -> str:
    """Return a link on the way to `path` that another user has put into a directory of somebody else; "" if none."""
    here = ""
    for name in os.path.abspath(path).split("/")[1:]:
        above, here = here or "/", f"{here}/{name}"
        try:
            found = os.lstat(here)
            if stat.S_ISLNK(found.st_mode) and not is_trusted(found.st_uid) and found.st_uid != os.stat(above).st_uid:
                return here
        except OSError:
            return ""
    return ""


def enter(path: str | os.PathLike[str], *, make: int | None = None) -> int:
    """Open the directory at `path`, and return its descriptor (O_PATH). Raises OSError.

    `make`: mode of missing directories, whatever the umask is; None creates none.

    Raises `Exposed` if another user owns the directory, or can put another one in its place. A link is followed only if
    no other user could have put it there. A mounted file system may be open to everyone, as a pod's volume is. Only
    root refuses directories that a group may write or that are below another user's directory, because users share
    directories with their own group.
    """
    todo = [name for name in reversed(os.path.abspath(path).split("/")) if name]
    stack = [_descriptor("/", None)]
    names: list[str] = []
    links = 0
    try:
        while todo:
            _judge(stack, names, last=False)
            name = todo.pop()
            if name == "..":
                if names:
                    os.close(stack.pop())
                    names.pop()
                continue
            where = "/" + "/".join((*names, name))
            try:
                fd = _descriptor(name, stack[-1])
            except FileNotFoundError:
                if make is None:
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None
                fd = _made(name, stack[-1], make, where)
            found = os.fstat(fd)
            if stat.S_ISLNK(found.st_mode):
                os.close(fd)
                links += 1
                _judge_link(found, where)
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), where)
                target = os.readlink(name, dir_fd=stack[-1])
                if target.startswith("/"):
                    while len(stack) > 1:
                        os.close(stack.pop())
                    names.clear()
                todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            if not stat.S_ISDIR(found.st_mode):
                os.close(fd)
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), where)
            stack.append(fd)
            names.append(name)
        _judge(stack, names, last=True)
        return stack.pop()
    finally:
        for fd in stack:
            os.close(fd)


def enter_own(name: str, parent: int, *, shown: str, volume: bool) -> int:
    """Open the directory `name` in `parent`, which this user or root owns. Return its descriptor (O_PATH).

    It is created if missing. Raises `Exposed` if it is a link, or if another user owns it or may write to it.
    `shown`: its path, for the message. `volume`: the file system decides who may write to it (see `enter`).
    """
    try:
        fd = _descriptor(name, parent)
    except FileNotFoundError:
        fd = _made(name, parent, 0o755, shown)
    found = os.fstat(fd)
    who = "" if volume else writers(found, entries=True)
    if stat.S_ISDIR(found.st_mode) and is_trusted(found.st_uid) and not who:
        return fd
    os.close(fd)
    remedy = f"ls -ld {shown}; rm -rf {shown}, if nothing that runs needs it"
    if stat.S_ISLNK(found.st_mode):
        raise Exposed("it is a link, and a directory was expected", shown, remedy)
    if not is_trusted(found.st_uid):
        raise Exposed(f"it belongs to another user (uid {found.st_uid})", shown, remedy)
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), shown)
    raise Exposed(f"{who} may write to it (mode {stat.S_IMODE(found.st_mode):04o})", shown, remedy)


def _descriptor(name: str, parent: int | None) -> int:
    return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _made(name: str, parent: int, mode: int, where: str) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        # another process of this user may create it at the same time; a directory of another user is refused below
        pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, where) from None
    fd = _descriptor(name, parent)
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        os.chmod(f"/proc/self/fd/{fd}", mode)
    return fd


def _judge_link(found: os.stat_result, where: str) -> None:
    if not is_trusted(found.st_uid):
        raise Exposed(f"it is a link that another user has made (uid {found.st_uid})", where, f"ls -ld {where}")


def _judge(stack: list[int], names: list[str], *, last: bool) -> None:
    """Raise `Exposed` if another user could put other entries into the directory at the end of the stack."""
    found = os.fstat(stack[-1])
    where = "/" + "/".join(names)
    root = os.geteuid() == 0
    if not is_trusted(found.st_uid) and (root or last):
        raise Exposed(
            f"it belongs to another user (uid {found.st_uid})",
            where,
            f"chown {os.geteuid()} {where}" if root else f"ls -ld {where}",
        )
    who = writers(found)
    if who == "everyone" or (who and root):
        if last and len(stack) > 1 and os.fstat(stack[-2]).st_dev != found.st_dev:
            return  # the file system is a volume: its owner decides who may write to it
        mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
        raise Exposed(f"{who} may write to it ({mode})", where, f"chmod {'o' if who == 'everyone' else 'g'}-w {where}")
