"""Locks that show which job uses or resets a device. Each device has one lock file, which all jobs of a state directory
share.

A device of this machine has a second lock file, in a folder that every user can write to, for jobs of other users and
other state directories. Lock files stay empty. To lock another user's file, read access suffices.

A job holds the locks of its devices shared while any of its processes lives. A reset holds the locks of its whole group
exclusively. The kernel releases the locks (flock) of a dead process. Locks are always acquired in the same order, so
that jobs never deadlock. If a lock is not free, a small child process waits for it. Parent and child have the same open
files, so the parent then holds the lock too.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.act.isolated_fork import forked
from holdfast.observe.devices.device_discovery import local_devices
from holdfast.safe_files import open_file

#: Folders in which every user may create files, but may not remove other users' files. The first suitable one is used.
MACHINE_FOLDERS = (Path("/run/lock"), Path("/tmp"))


class LockWaiter:
    """Waits in a child process for locks of another process. `pidfd`: readable when the child has the locks or was
    killed.
    """

    def __init__(self, fds: Sequence[int], how: int) -> None:
        """`fds`: the descriptors of the lock files, in the order of locking. `how`: `LOCK_SH` or `LOCK_EX`."""
        self._child = forked(lambda: _lock(fds, how), keep=fds)
        self.pid = self._child.pid
        self.pidfd = self._child.pidfd

    def ended(self) -> bool:
        """Reap the child process. Return whether it acquired the locks."""
        return self._child.reap() == 0

    def give_up(self) -> None:
        self._child.end()


class DeviceLocks:
    """This job's locks on its devices. If no lock file can be created, `say` prints why, and every request succeeds
    without a lock.
    """

    def __init__(self, home: Path, node: str, say: Callable[[str], None], *, machine: Path | None = None) -> None:
        """Store where the lock files are.

        `home`: the state directory. `node`: this node's name. `machine`: a folder that all users share, for the second
        lock file of every device. None: the usual folder, and only for this machine's devices.
        """
        self._home = home
        self._node = _plain(node)
        self._say = say
        self._machine = machine
        #: (device, folder) → descriptor of the open lock file.
        self._fds: dict[tuple[str, str], int] = {}
        self._asked: set[str] = set()
        self._broken = False

    def share(self, devices: Iterable[str]) -> bool:
        """Lock devices for use. If another job resets one of the devices, lock none and return False."""
        return self._try(devices, fcntl.LOCK_SH)

    def claim(self, devices: Iterable[str]) -> bool:
        """Lock devices exclusively. If another job uses one of the devices, lock none and return False."""
        return self._try(devices, fcntl.LOCK_EX)

    def wait(self, devices: Iterable[str], *, alone: bool) -> LockWaiter:
        """Wait for the locks in a child process, because `share` or `claim` has returned False. `alone`: wait for
        exclusive locks, like `claim`.
        """
        return LockWaiter(self.fds(devices), fcntl.LOCK_EX if alone else fcntl.LOCK_SH)

    def wait_here(self, devices: Iterable[str]) -> None:
        """Block this process until no job resets any of these devices."""
        _lock(self.fds(devices), fcntl.LOCK_SH)
        self.close()

    def let_go(self, devices: Iterable[str]) -> None:
        for fd in self.fds(devices):
            # Unlock explicitly. A process that was forked meanwhile may have the same open file, which would keep the
            # lock.
            fcntl.flock(fd, fcntl.LOCK_UN)

    def holders(self, devices: Iterable[str]) -> tuple[int, ...]:
        """Return the pids that hold one of these locks, if the kernel shows them."""
        inodes = {os.fstat(fd).st_ino for fd in self.fds(devices)}
        try:
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return ()
        held = [line.split() for line in lines if "FLOCK" in line and "->" not in line]
        found = {int(words[4]) for words in held if int(words[5].rpartition(":")[2]) in inodes}
        # The kernel lists a lock under the process that acquired it, which may be a child that has exited since.
        return tuple(sorted(pid for pid in found if pid != os.getpid() and Path(f"/proc/{pid}").exists()))

    def fds(self, devices: Iterable[str]) -> tuple[int, ...]:
        """Return the descriptors of the devices' lock files, in the order of locking."""
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
    """Return whether every user may create files in the folder, but may not remove other users' files."""
    try:
        return folder.stat().st_mode & 0o1003 == 0o1003
    except OSError:
        return False


def _open_shared(path: Path) -> int:
    """Open a lock file that all users share. Return -1 if that fails."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for more in (0, os.O_CREAT | os.O_EXCL, 0):
        try:
            # In a folder such as /tmp the kernel refuses O_CREAT for another user's file, so use O_CREAT only if the
            # file is missing.
            fd = os.open(path, flags | more, 0o444)
        except OSError:
            continue
        if more:
            os.fchmod(fd, 0o444)  # make the file readable for other users, whatever the umask
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    return -1


def _lock(fds: Iterable[int], how: int) -> None:
    for fd in fds:
        fcntl.flock(fd, how)


def _plain(word: str) -> str:
    """Replace each character other than letters, digits, `.`, `_` and `-`, so that the text can be a file name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in word)
