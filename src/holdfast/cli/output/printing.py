"""Prints text for the verbs. No text of users or programs can control the terminal.

Workers' output (`holdfast logs`) is printed unchanged, without these functions.
"""

from __future__ import annotations

import sys

from holdfast.safe_text import one_line, own_lines, styled


def print_line(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print `text`, with holdfast's own colours.

    A character that the terminal cannot encode becomes a question mark. `err`: print to stderr. `nl`: end the line.
    """
    stream = sys.stderr if err else sys.stdout
    out = styled(str(text)) + ("\n" if nl else "")
    encoding = stream.encoding or "utf-8"
    stream.write(out.encode(encoding, "replace").decode(encoding))
    stream.flush()


def redraw_line(line: str, width: int) -> None:
    """Replace the terminal's current line by `line`, which has no line end. An empty `line` clears it."""
    shown = one_line(line)[: max(0, width - 1)]
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(f"\r{shown:<{width - 1}}\r{shown}".encode(encoding, "replace").decode(encoding))
    sys.stderr.flush()


def say(text: str) -> None:
    """Print a message of holdfast to stderr. Only its first line begins with `holdfast:`."""
    for line in own_lines(text, again=""):
        print_line(line, err=True)
