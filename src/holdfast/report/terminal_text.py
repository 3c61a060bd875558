"""Text for a terminal. It has colours only on request, and no control sequences from users and programs."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Mapping
from typing import TextIO

from holdfast.safe_text import harmless

__all__ = ["Style", "columns", "harmless", "paint", "wants_colour", "wrapped"]


class Style(enum.StrEnum):
    """ANSI codes that begin a style. `0` ends any style."""

    GOOD = "1;32"
    BAD = "1;31"
    WARN = "1;33"
    STRONG = "1"
    FAINT = "2"


def paint(text: str, style: Style, colour: bool) -> str:
    """Return `text` in a style. If `colour` is false, return the text as it is."""
    return f"\x1b[{style.value}m{text}\x1b[0m" if colour and text else text


def wants_colour(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal with colours, and NO_COLOR is not set."""
    return not env.get("NO_COLOR") and env.get("TERM") != "dumb" and stream.isatty()


def columns(env: Mapping[str, str]) -> int:
    """Return the width for output in columns: the terminal's, limited to 60 to 120; without a terminal 100."""
    import shutil

    wide = shutil.get_terminal_size((100, 24)).columns
    return min(max(wide, 60), 120)


def wrapped(text: str, width: int, indent: str, first: str | None = None) -> list[str]:
    """Wrap the text's paragraphs at blanks, to `width` columns. `indent`: precedes each line; `first`: precedes the
    first line.

    A word that is longer than a line (a path, a command) stays whole, so that it can be copied.
    """
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        lead = indent if lines or first is None else first
        lines += textwrap.wrap(
            paragraph,
            width,
            initial_indent=lead,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [lead.rstrip()]
    return lines
