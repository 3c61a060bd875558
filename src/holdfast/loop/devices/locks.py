"""Who may use a device, and who may reset it: one lock file a device in the state directory, shared by all jobs there.

A job holds each of its devices' locks shared while anything of it lives; a reset holds those of its whole group alone.
The locks are the kernel's (flock): whoever dies lets go. Several are always taken in one order, so that nobody waits in
a ring. What cannot be had at once is waited for in a small process, which takes the locks for its parent: both have the
same open files.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.act.linux import end_child, reap_child


class Waiting:
    """Locks that somebody else holds. `pidfd` is readable when they are ours, or when the process was killed."""

    def __init__(self, fds: Sequence[int], how: int) -> None:
        from holdfast.loop.prechecks.child import isolate  # a start that finds its devices free has no use for it

        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                isolate(parent, fds, os.open(os.devnull, os.O_WRONLY))
                _lock(fds, how)
                status = 0
            finally:
                os._exit(status)
        self.pidfd = os.pidfd_open(self.pid)

    def ended(self) -> bool:
        """Reap it; whether it got the locks."""
        os.close(self.pidfd)
        return reap_child(self.pid) == 0

    def give_up(self) -> None:
        end_child(self.pid, self.pidfd)
        os.close(self.pidfd)


class DeviceLocks:
    """This job's hold on its machine's devices. Where no file can be made, `say` tells once, and all is granted."""

    def __init__(self, home: Path, node: str, say: Callable[[str], None]) -> None:
        self._home = home
        self._node = _plain(node)
        self._say = say
        self._fds: dict[str, int] = {}
        self._broken = False

    def share(self, devices: Iterable[str]) -> bool:
        """Use these devices: whether nobody resets any of them. False: none of them is ours then."""
        return self._try(devices, fcntl.LOCK_SH)

    def claim(self, devices: Iterable[str]) -> bool:
        """Have these devices alone: whether no other job uses any of them. False: none of them is ours then."""
        return self._try(devices, fcntl.LOCK_EX)

    def wait(self, devices: Iterable[str], *, alone: bool) -> Waiting:
        """After `share` or `claim` was refused: wait for it."""
        return Waiting(self.fds(devices), fcntl.LOCK_EX if alone else fcntl.LOCK_SH)

    def wait_here(self, devices: Iterable[str]) -> None:
        """Have this process stand until nobody resets any of these devices."""
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
        # A lock that was waited for is told as that of the process which waited.
        return tuple(sorted(pid for pid in found if pid != os.getpid() and Path(f"/proc/{pid}").exists()))

    def fds(self, devices: Iterable[str]) -> tuple[int, ...]:
        """The open lock files, in the one order."""
        for device in sorted(devices):
            if device not in self._fds and not self._broken:
                self._open(device)
        return tuple(self._fds[device] for device in sorted(devices) if device in self._fds)

    def close(self) -> None:
        self.let_go(tuple(self._fds))
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

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
            self._fds[device] = os.open(self._home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._broken = True
            self._say(
                f"{self._home / name}: {error.strerror}; other jobs on this machine cannot see that this one uses "
                f"{device}, nor this one that another resets it"
            )


def _lock(fds: Iterable[int], how: int) -> None:
    for fd in fds:
        fcntl.flock(fd, how)


def _plain(word: str) -> str:
    """A part of a file's name: letters, digits, `.`, `_` and `-`."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in word)
