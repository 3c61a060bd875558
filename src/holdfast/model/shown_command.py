"""Shows the command line of another process in a form that is safe to print."""

from __future__ import annotations

from shlex import quote

MOST_CHARS = 80


def shown(cmdline: bytes) -> str:
    r"""Return the bytes of /proc/PID/cmdline as one line of at most 80 characters, quoted as for a shell.

    Line ends and control characters are escaped (`$'two\nlines'`), because they could garble the terminal. The line is
    empty if the process has no command line (a kernel thread, a zombie).
    """
    words = cmdline.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    line = "" if words == [""] else " ".join(_quoted(word) for word in words)
    return line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1]}…"


def _quoted(word: str) -> str:
    if word.isprintable():
        return quote(word)
    return "$'" + "".join(_escaped(char) for char in word) + "'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    return char if char.isprintable() else repr(char)[1:-1]
