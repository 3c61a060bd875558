"""Undoes an import after which forks are unsafe. A fork of the prewarmed process from before the import takes over.

Before each large import the prewarmed process forks a backup process, which waits. If the import makes forks unsafe (it
starts a thread, or reads a variable that differs between workers), the backup becomes the prewarmed process, without
that import. All earlier imports stay, and nothing is imported twice.
"""

from __future__ import annotations

import _socket
import marshal
import os
import struct
import sys

from . import fork_to_worker

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_READ = 1 << 16


class Spare:
    """A backup process, seen by its parent. It waits in case the last import makes forks unsafe. `tell`: the pipe to
    it. `heard`: the pipe from it.
    """

    def __init__(self, pid: int, tell: int, heard: int) -> None:
        self.pid = pid
        self.tell = tell
        self.heard = heard

    def close(self) -> None:
        os.close(self.tell)
        os.close(self.heard)

    def dismiss(self) -> None:
        """End this backup process, because it is not needed. It exits when its pipe closes."""
        self.close()
        os.waitpid(self.pid, 0)


class Retreat:
    """The backup processes of this prewarmed process: one from before the last import, and a second one while that
    import is checked.
    """

    def __init__(self, control: Any, supervisor: int, printed: tuple[int, ...]) -> None:
        """Start without backup processes. `control`: the socket to the supervisor. `supervisor`: its pid. `printed`:
        the fds of the files that receive the prewarmed process's stdout and stderr."""
        self._control = control
        self._supervisor = supervisor
        self._printed = printed
        self._spares: list[Spare] = []

    def pids(self) -> frozenset[int]:
        """Return the pids of the backup processes."""
        return frozenset(spare.pid for spare in self._spares)

    def fds(self) -> list[int]:
        """Return the fds of the pipes to the backup processes."""
        return [fd for spare in self._spares for fd in (spare.tell, spare.heard)]

    def is_open(self) -> bool:
        """Return whether a backup process could take over."""
        return bool(self._spares)

    def keep(self) -> dict[str, Any] | None:
        """Fork a backup process. Return None in the parent. The backup waits; if it takes over, it returns the import
        that it must leave out.
        """
        read, tell = os.pipe()
        heard, answer = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # without a flush, both processes would write the buffered text
        sizes = [os.fstat(fd).st_size for fd in self._printed]
        nursery = os.getpid()
        pid = fork()
        if pid:
            os.close(read)
            os.close(answer)
            self._spares.append(Spare(pid, tell, heard))
            return None
        for other in self._spares:
            other.close()
        self._spares.clear()
        os.close(tell)
        os.close(heard)
        try:
            found = self._wait(read, answer, nursery)
            for at, fd in enumerate(self._printed):
                # drop the output that the parent wrote after this fork, because the workers will print it
                os.ftruncate(fd, sizes[at])
        except BaseException:  # exit, because the state of the backup process is unknown; workers then start cold
            os._exit(70)
        return found

    def forget_first(self) -> None:
        """End the oldest backup process, because the import after it was harmless."""
        self._spares.pop(0).dismiss()

    def forget(self) -> None:
        """End all backup processes."""
        while self._spares:
            self.forget_first()

    def hand_over(self, found: dict[str, Any]) -> None:
        """Let the oldest backup process take over, and exit. Return only if the backup has died. `found`: the import
        that it must leave out.
        """
        first, *others = self._spares
        for other in others:
            other.dismiss()
        self._spares = [first]
        os.write(first.tell, marshal.dumps(found))
        os.close(first.tell)
        if os.read(first.heard, 1):
            # Report the backup process before the supervisor adopts it, because an unknown child would count as a
            # process of the job.
            fds = struct.pack("i", os.pidfd_open(first.pid))
            message = marshal.dumps(("moved", first.pid))
            self._control.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
            os._exit(0)
        os.close(first.heard)
        os.waitpid(first.pid, 0)
        self._spares = []

    def _wait(self, read: int, answer: int, nursery: int) -> dict[str, Any]:
        fork_to_worker.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
        if os.getppid() != nursery:
            os._exit(0)
        data = b""
        while part := os.read(read, _READ):
            data += part
        if not data:
            os._exit(0)
        os.close(read)
        found: dict[str, Any] = marshal.loads(data)
        other = os.pidfd_open(nursery)
        fork_to_worker.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
        os.write(answer, b".")
        os.close(answer)
        was_there = "select" in sys.modules
        import select

        select.select([other], [], [])
        if not was_there:
            del sys.modules["select"]
        os.close(other)
        fork_to_worker.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
        if os.getppid() != self._supervisor:
            os._exit(0)
        return found


def fork() -> int:
    """Fork without the warning about threads that Python 3.12 prints. Other code has checked the threads."""
    if sys.version_info >= (3, 12):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()
    else:
        return os.fork()


_READ_BY_TORCH = ("TORCH", "PYTORCH_", "CUDA_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "LD_")


def torch_part(known: frozenset[str], environ: dict[str, str], but: frozenset[str]) -> list[str]:
    """Return the modules of torch that an import has loaded, in order, without those in `known`. The next prewarmed
    process can import them in place of that import.

    Return none if the import has set a variable that torch may read, other than those in `but`. `environ`: the
    environment before the import.
    """
    now = dict(os.environ)
    for name in environ.keys() | now.keys():
        if name.startswith(_READ_BY_TORCH) and name not in but and environ.get(name) != now.get(name):
            return []
    return [name for name in sys.modules if (name == "torch" or name.startswith("torch.")) and name not in known]
