"""Creates the workers' standard streams: pipes, or a terminal for a single worker.

One rank reads holdfast's stdin; the others read /dev/null. Each worker has its own session, and a terminal that is not
the session's controlling terminal does not check the reader's process group. So the rank reads the user's terminal
directly, with echo and line editing, while Ctrl-C still goes to holdfast.

A single worker that prints to a terminal gets two pseudo-terminals, one for each stream, so that each stream has its
own log file. They have the size of the real terminal and leave the output unchanged, so colours and progress bars work.
"""

from __future__ import annotations

import fcntl
import os

from holdfast.act.linux import in_background

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Streams:
    """Creates standard streams.

    `stdin_fd`: holdfast's stdin. `reader`: the rank that reads it, if any. `screens`: for stdout and stderr of a single
    worker, the fd of the terminal whose size the pseudo-terminal gets; None: a pipe. `guard`: the pid of the process
    that the user's shell started.
    """

    def __init__(
        self,
        stdin_fd: int | None = None,
        reader: int | None = 0,
        screens: Sequence[int | None] = (None, None),
        guard: int = 0,
    ) -> None:
        usable = stdin_fd is not None and not (os.isatty(stdin_fd) and guard and in_background(guard))
        self._stdin = stdin_fd if usable else None
        self._reader = reader
        self._screens = tuple(screens)
        self._null = -1
        #: Stream number → a copy of the fd of its latest pseudo-terminal, which is needed to change the size.
        self._ours: dict[int, int] = {}
        self._modes = modes(self._stdin) if self._stdin is not None else None

    def stdin(self, rank: int) -> int:
        """Return the fd for this rank's stdin. The caller must not close it."""
        if rank == self._reader and self._stdin is not None:
            # A worker that was killed while the user edited a line may have changed the terminal's mode.
            restore(self._stdin, self._modes)
            return self._stdin
        if self._null < 0:
            self._null = os.open(os.devnull, os.O_RDONLY)
        return self._null

    def pair(self, number: int) -> tuple[int, int]:
        """Create stdout (0) or stderr (1) of a worker. Return the fd that holdfast reads, and the worker's fd. Raises
        OSError. `number`: 0 for stdout, 1 for stderr.
        """
        real = self._screens[number]
        return os.pipe() if real is None else self._terminal(number, real)

    def _terminal(self, number: int, real: int) -> tuple[int, int]:
        import termios  # imported late, because most runs have pipes

        try:
            ours, theirs = os.openpty()
        except OSError:
            return os.pipe()  # no pseudo-terminal is available, so use a pipe
        as_it_is = termios.tcgetattr(theirs)
        as_it_is[1] &= ~termios.OPOST
        as_it_is[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
        termios.tcsetattr(theirs, termios.TCSANOW, as_it_is)
        if (before := self._ours.pop(number, None)) is not None:
            os.close(before)
        self._ours[number] = os.dup(ours)
        self._fit(self._ours[number], real)
        return ours, theirs

    def resized(self) -> bool:
        """Copy the real terminal's new size to the worker's pseudo-terminals. Return False if the worker has none."""
        for number, ours in self._ours.items():
            real = self._screens[number]
            assert real is not None
            self._fit(ours, real)
        return bool(self._ours)

    def _fit(self, ours: int, real: int) -> None:
        import termios

        try:
            fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(real, termios.TIOCGWINSZ, bytes(8)))
        except OSError:
            pass  # ignore the error: the real terminal is closed, so keep the size

    def close(self) -> None:
        """Close the fds of this object."""
        for ours in self._ours.values():
            os.close(ours)
        self._ours.clear()
        if self._null >= 0:
            os.close(self._null)
            self._null = -1


def modes(fd: int) -> list[Any] | None:
    """Return a terminal's settings, for `restore`; None if the fd is not a terminal."""
    if not os.isatty(fd):
        return None
    import termios

    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None


def restore(fd: int, before: list[Any] | None) -> None:
    """Restore a terminal's settings to `before` if they have changed. Do nothing if the terminal is gone."""
    if before is None:
        return
    import termios

    try:
        if termios.tcgetattr(fd) != before:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
    except termios.error:
        pass  # ignore a terminal that was closed
