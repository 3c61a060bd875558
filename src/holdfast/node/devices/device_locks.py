"""Who may use a device, and who may reset it: one lock file a device in the state directory, shared by all jobs there.

A device that this machine has is locked a second time, in a folder that every user can write to: jobs of other users,
and of other state directories, count as well. Nothing is ever written into those files, and one of another user is only
read, which is all that a lock takes.

A job holds each of its devices' locks shared while anything of it lives; a reset holds those of its whole group alone.
The locks are the kernel's (flock): a process that dies lets go. Several are always taken in one order, so that no job
waits in a ring. What cannot be had at once is waited for in a small process, which takes the locks for its parent: both
have the same open files.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.observe.devices.device_discovery import local_devices
from holdfast.safe_files import open_file

#: Where every user may make a file that no other user can take away; the first that is so.
MACHINE_FOLDERS = (Path("/run/lock"), Path("/tmp"))


class LockWaiter:
    """Locks that another process holds. `pidfd` is readable when they are ours, or when the process was killed."""

    def __init__(self, fds: Sequence[int], how: int) -> None:
        from holdfast.act.isolated_fork import forked  # a start that finds its devices free has no use for it

        self._child = forked(lambda: _lock(fds, how), keep=fds)
        self.pid = self._child.pid
        self.pidfd = self._child.pidfd

    def ended(self) -> bool:
        """Reap it; whether it got the locks."""
        return self._child.reap() == 0

    def give_up(self) -> None:
        self._child.end()


class DeviceLocks:
    """This job's hold on its machine's devices. Where no file can be made, `say` tells once, and all is granted."""

    def __init__(self, home: Path, node: str, say: Callable[[str], None], *, machine: Path | None = None) -> None:
        """`machine`: the folder that all users share, for every device; else the usual one, for those that are here."""
        self._home = home
        self._node = _plain(node)
        self._say = say
        self._machine = machine
        self._fds: dict[tuple[str, str], int] = {}
        """By device and folder, the state directory's first."""
        self._asked: set[str] = set()
        self._broken = False

    def share(self, devices: Iterable[str]) -> bool:
        """Use these devices: whether no other job resets any of them. False: none of them is ours then."""
        return self._try(devices, fcntl.LOCK_SH)

    def claim(self, devices: Iterable[str]) -> bool:
        """Have these devices alone: whether no other job uses any of them. False: none of them is ours then."""
        return self._try(devices, fcntl.LOCK_EX)

    def wait(self, devices: Iterable[str], *, alone: bool) -> LockWaiter:
        """After `share` or `claim` was refused: wait for it."""
        return LockWaiter(self.fds(devices), fcntl.LOCK_EX if alone else fcntl.LOCK_SH)

    def wait_here(self, devices: Iterable[str]) -> None:
        """Have this process stand until no job resets any of these devices."""
        _lock(self.fds(devices), fcntl.LOCK_SH)
        self.close()

    def let_go(self, devices: Iterable[str]) -> None:
        for fd in self.fds(devices):
            # Said, not left to the closing: a process that was being forked meanwhile may have the same open file.
            fcntl.flock(fd, fcntl.LOCK_UN)

    def holders(self, devices: Iterable[str]) -> tuple[int, ...]:
        """The processes that hold one of these locks, as far as the kernel tells."""
        inodes = {os.fstat(fd).st_ino for fd in self.fds(devices)}
        try:
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return ()
        held = [line.split() for line in lines if "FLOCK" in line and "->" not in line]
        found = {int(words[4]) for words in held if int(words[5].rpartition(":")[2]) in inodes}
        # The kernel lists a lock that was waited for as that of the process which waited.
        return tuple(sorted(pid for pid in found if pid != os.getpid() and Path(f"/proc/{pid}").exists()))

    def fds(self, devices: Iterable[str]) -> tuple[int, ...]:
        """The open lock files, in the one order."""
        wanted = sorted(set(devices))
        for device in wanted:
            if device not in self._asked:
                self._asked.add(device)
                self._open(device)
        return tuple(self._fds[device, where] for device in wanted for where in _PLACES if (device, where) in self._fds)

    def close(self) -> None:
        self.let_go({device for device, _ in self._fds})
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        self._asked.clear()

    def _try(self, devices: Iterable[str], how: int) -> bool:
        fds = self.fds(devices)
        try:
            _lock(fds, how | fcntl.LOCK_NB)
        except OSError:
            for fd in fds:
                fcntl.flock(fd, fcntl.LOCK_UN)
            return False
        return True

    def _open(self, device: str) -> None:
        name = f".device-{self._node}-{_plain(device)}.lock"
        try:
            if not self._broken:
                self._fds[device, "home"] = open_file(self._home / name, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            self._broken = True
            self._say(
                f"{self._home / name}: {error.strerror}; other jobs on this machine cannot see that this one uses "
                f"{device}, nor this one that another resets it"
            )
        folder = self._machine
        if folder is None and device in local_devices():
            folder = next((each for each in MACHINE_FOLDERS if _is_everybodys(each)), None)
        if folder is not None and (fd := _open_shared(folder / f"holdfast-{_plain(device)}.lock")) >= 0:
            self._fds[device, "machine"] = fd


_PLACES = ("home", "machine")


def _is_everybodys(folder: Path) -> bool:
    """Whether every user may make a file there, and none may remove another's."""
    try:
        return folder.stat().st_mode & 0o1003 == 0o1003
    except OSError:
        return False


def _open_shared(path: Path) -> int:
    """Open a lock file of the whole machine, of any user; -1 where that cannot be."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for more in (0, os.O_CREAT | os.O_EXCL, 0):
        try:
            # The kernel refuses O_CREAT for a file of another user in such a folder, so it is made only if missing.
            fd = os.open(path, flags | more, 0o444)
        except OSError:
            continue
        if more:
            os.fchmod(fd, 0o444)  # under any umask: the next user must be able to read it
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    return -1


def _lock(fds: Iterable[int], how: int) -> None:
    for fd in fds:
        fcntl.flock(fd, how)


def _plain(word: str) -> str:
    """A part of a file's name: letters, digits, `.`, `_` and `-`."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in word)
