"""Writes to an inherited fd without ever blocking.

O_NONBLOCK must not be set on the fd: the flag belongs to the open file description, and the user's shell and other
commands in the pipeline may share it. So:

- terminal, pipe, character device: it is opened again through /proc/self/fd/N, which gives it its own description;
- socket, which cannot be opened again: every send has MSG_DONTWAIT;
- regular file: the fd is used as it is. If it were opened again, it would begin at offset 0. A write to a file never
  waits for a reader;
- any other fd that cannot be opened again (a pipe of another user after `sudo`, no /proc): poll before each write, and
  write so little that a writable pipe has room for it. If another writer fills the pipe between the two calls, that
  write blocks; this cannot be avoided.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import select
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

Buffer = bytes | bytearray | memoryview

#: Bytes of one write to an fd that may block. By POSIX a pipe has room for this many (PIPE_BUF) if poll reports it
#: writable.
PATIENT_BYTES = 512

#: The errno values that mean that no reader will ever come: the reader has closed the fd, the terminal has hung up, or
#: the fd was never open.
GONE = frozenset(
    {errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.ENODEV}
)


class OutletKind(enum.Enum):
    #: The outlet has its own open file description, or the fd was non-blocking before.
    OWN = "own"
    FILE = "file"
    SOCKET = "socket"
    PATIENT = "patient"
    CLOSED = "closed"


class Outlet:
    """Wraps an fd so that `write` never blocks. A selector can wait on `fd`, unless the kind is FILE or CLOSED."""

    __slots__ = ("_socket", "fd", "identity", "is_terminal", "kind")

    def __init__(self, fd: int) -> None:
        self.fd = -1
        self.kind = OutletKind.CLOSED
        #: Identifies the file. Two fds of one file, such as stdout and stderr of one terminal, have the same value.
        self.identity: tuple[int, int, int] | None = None
        self.is_terminal = False
        self._socket: socket.socket | None = None
        try:
            status = os.fstat(fd)
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        except OSError:
            return
        self.identity = (status.st_dev, status.st_ino, status.st_rdev)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return
        if stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode):
            self.kind = OutletKind.FILE
            self.fd = _duplicate(fd)
        elif stat.S_ISSOCK(status.st_mode):
            import socket  # imported late, because stdout is rarely a socket

            self._socket = socket.socket(fileno=_duplicate(fd))
            self.kind = OutletKind.SOCKET
            self.fd = self._socket.fileno()
        elif flags & os.O_NONBLOCK:
            self.kind = OutletKind.OWN
            self.fd = _duplicate(fd)
        else:
            self._open_again(fd)
        self.is_terminal = self.fd >= 0 and os.isatty(self.fd)

    def _open_again(self, fd: int) -> None:
        try:
            self.fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO and stat.S_ISFIFO(os.fstat(fd).st_mode):
                return  # keep the kind CLOSED, because the pipe has no reader
            self.fd = _duplicate(fd)
            self.kind = OutletKind.PATIENT
        else:
            self.kind = OutletKind.OWN

    @property
    def waits(self) -> bool:
        """Return whether a selector can report that the fd is writable again."""
        return self.kind in (OutletKind.OWN, OutletKind.SOCKET, OutletKind.PATIENT)

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Write as many of the buffers' bytes as possible, in order. Return the number of written bytes.

        Raises:
            BlockingIOError: no byte can be written now.
            OSError: the errors in `GONE` are final.
        """
        match self.kind:
            case OutletKind.OWN | OutletKind.FILE:
                return os.writev(self.fd, buffers)
            case OutletKind.SOCKET:
                import socket

                assert self._socket is not None
                return self._socket.sendmsg(buffers, (), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            case OutletKind.PATIENT:
                poll = select.poll()
                poll.register(self.fd, select.POLLOUT)
                if not poll.poll(0):
                    raise BlockingIOError(errno.EAGAIN, "not writable now")
                return os.write(self.fd, memoryview(buffers[0])[:PATIENT_BYTES])
            case OutletKind.CLOSED:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def is_gone(self, error: OSError) -> bool:
        """Return whether the error means that the reader is gone for good. After other errors a later write may
        work.
        """
        return error.errno in GONE and self.kind is not OutletKind.FILE

    def give_up(self) -> None:
        """Stop writing. The fd stays open until `close`, because a selector may still use its number."""
        self.kind = OutletKind.CLOSED

    def close(self) -> None:
        self.kind = OutletKind.CLOSED
        if self._socket is not None:
            self._socket.close()
        elif self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def _duplicate(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
