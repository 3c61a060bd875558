"""What the workers' standard streams lead to: pipes, and a terminal where one rank may have it.

One rank reads holdfast's own stdin; for the others it is empty. A worker lives in a session of its own, and a terminal
that is not its controlling one asks no reader for its process group: so the rank reads it as it is, with the echo and
line editing that the user knows, while Ctrl-C still goes to holdfast.

A single worker whose output is shown on a terminal writes to terminals of its own, one a stream, so that the files stay
apart: they have the width of the real one, change nothing of what is written, and so keep colours and progress bars.
"""

from __future__ import annotations

import os

from holdfast.act.linux import in_background

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Streams:
    """`reader`: the rank that has `stdin_fd`, if any. `screens`: of which fd a single worker's stdout and stderr take
    their terminal's size; None: a pipe. `guard`: the process that the user's shell knows."""

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
        self._ours: dict[int, int] = {}
        """Our own fds of the latest terminals, by stream, each with the real one's fd."""
        self._modes = modes(self._stdin) if self._stdin is not None else None

    def stdin(self, rank: int) -> int:
        """The standard input of this rank. The fd stays ours."""
        if rank == self._reader and self._stdin is not None:
            # Who was killed while it edited a line left the terminal as that needs it.
            restore(self._stdin, self._modes)
            return self._stdin
        if self._null < 0:
            self._null = os.open(os.devnull, os.O_RDONLY)
        return self._null

    def pair(self, number: int) -> tuple[int, int]:
        """The end that holdfast reads and the worker's own, of stdout (0) or stderr (1). Raises OSError."""
        real = self._screens[number]
        return os.pipe() if real is None else self._terminal(number, real)

    def _terminal(self, number: int, real: int) -> tuple[int, int]:
        import termios  # most runs have pipes

        try:
            ours, theirs = os.openpty()
        except OSError:
            return os.pipe()  # no terminals can be made here: a mere pipe does it
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
        """The real terminal has another size: set the workers' terminals to it. False where they have none."""
        for number, ours in self._ours.items():
            real = self._screens[number]
            assert real is not None
            self._fit(ours, real)
        return bool(self._ours)

    def _fit(self, ours: int, real: int) -> None:
        import fcntl
        import termios

        try:
            fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(real, termios.TIOCGWINSZ, bytes(8)))
        except OSError:
            pass  # the real one was closed: the size stays as it was

    def close(self) -> None:
        for ours in self._ours.values():
            os.close(ours)
        self._ours.clear()
        if self._null >= 0:
            os.close(self._null)
            self._null = -1


def modes(fd: int) -> list[Any] | None:
    """A terminal's settings, for `restore`; None where the fd is none."""
    if not os.isatty(fd):
        return None
    import termios

    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None


def restore(fd: int, before: list[Any] | None) -> None:
    """Restore a terminal's settings, where they have changed. A terminal that no longer exists is left alone."""
    if before is None:
        return
    import termios

    try:
        if termios.tcgetattr(fd) != before:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
    except termios.error:
        pass  # it was closed meanwhile
