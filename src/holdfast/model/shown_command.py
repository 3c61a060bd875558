"""Another process's command line, safe to print in one of holdfast's lines."""

from __future__ import annotations

MOST_CHARS = 80


def shown(cmdline: bytes) -> str:
    r"""The bytes of /proc/PID/cmdline on one line of at most 80 characters, quoted as a shell would take it.

    It is text of another's making: line ends and control characters in it would break or steer what we print, so they
    are escaped (`$'two\nlines'`). Empty where the process has none (a thread of the kernel, a zombie).
    """
    words = cmdline.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    line = "" if words == [""] else " ".join(_quoted(word) for word in words)
    return line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1]}…"


def _quoted(word: str) -> str:
    if word.isprintable():
        from shlex import quote  # only a message about a process needs it

        return quote(word)
    return "$'" + "".join(_escaped(char) for char in word) + "'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    return char if char.isprintable() else repr(char)[1:-1]
