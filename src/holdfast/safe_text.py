"""Cleans text of users and programs for the lines that holdfast prints, so that it cannot control a terminal or imitate
a line.

Workers' output is passed on unchanged. Everything else that holdfast prints goes through this module.
"""

from __future__ import annotations

import functools

from holdfast.lazy_pattern import Lazy

_ESCAPES = Lazy(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[@-_])")
#: The codes of `terminal_text.Style`. Text may change colours only with these codes.
_STYLES = Lazy(r"(\x1b\[(?:0|1|2|1;3[1-3])m)")

#: Characters that can control a terminal. Line feed is not among them: `one_line` and line prefixes handle it.
_STEERING = (
    *range(0x0A),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),  # C1: U+009B begins an escape sequence, like ESC [
    0x00AD,  # soft hyphen
    0x061C,  # Arabic letter mark
    0x180E,
    *range(0x200B, 0x2010),  # zero-width characters, and direction marks
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),  # characters that embed or override a text direction
    *range(0x2060, 0x2070),  # word joiner, invisible operators, and characters that isolate a text direction
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),  # tags, which are invisible text
)


@functools.cache
def _plain() -> dict[int, str]:
    steering = dict.fromkeys((*_STEERING, *range(0xD800, 0xE000)), "\ufffd")
    return {**steering, 0x09: "    "}


@functools.cache
def _json() -> dict[int, str]:
    return {code: _escaped(code) for code in _STEERING if code >= 0x7F}


def _escaped(code: int) -> str:
    wide = chr(code).encode("utf-16-be")
    return "".join(f"\\u{wide[at]:02x}{wide[at + 1]:02x}" for at in range(0, len(wide), 2))


def harmless(text: str) -> str:
    """Remove escape sequences and replace control characters. A tab becomes four blanks, and line ends stay."""
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r\n", "\n").translate(_plain())


def one_line(text: str) -> str:
    r"""Clean a text like `harmless`, and write every line end as a visible `\n`, so that the text cannot begin a new
    line."""
    return harmless(text.strip("\n")).replace("\n", "\\n")


def styled(text: str) -> str:
    """Clean a text like `harmless`, but keep holdfast's own colours."""
    if "\x1b" not in text:
        return harmless(text)
    parts = _STYLES.compiled.split(text)
    return "".join(part if index % 2 else harmless(part) for index, part in enumerate(parts))


def json_text(text: str) -> str:
    """Escape control characters in JSON as `\\uXXXX`. The meaning of the JSON stays the same."""
    return text if text.isascii() else text.translate(_json())


def own_lines(text: str, again: str = "holdfast: ") -> list[str]:
    """Format `text` as a message of holdfast: the first line has the prefix, and the other lines are indented.

    `again`: the prefix of the other lines. Live lines repeat the name holdfast, because workers' lines may come between
    them.
    """
    if not text:
        return []
    first, *rest = harmless(text).rstrip("\n").split("\n")
    return [f"holdfast: {first}", *(f"{again}{'' if line.startswith('  ') else '  '}{line}" for line in rest)]
