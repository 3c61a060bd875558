"""Cleans text of others for holdfast's own lines: nothing in it can steer a terminal or pass for another line.

Workers' output is passed on as it is; all else that holdfast prints goes through here.
"""

from __future__ import annotations

import functools

from holdfast.lazy_pattern import Lazy

_ESCAPES = Lazy(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[@-_])")
#: What `show.terminal.Style` has: nothing else may change a colour.
_STYLES = Lazy(r"(\x1b\[(?:0|1|2|1;3[1-3])m)")

#: Line feed is not among them: `one_line` and the lines' own prefixes deal with it.
_STEERING = (
    *range(0x0A),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),  # C1: U+009B begins a sequence as ESC [ does
    0x00AD,  # soft hyphen
    0x061C,  # Arabic letter mark
    0x180E,
    *range(0x200B, 0x2010),  # zero width, and marks of direction
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),  # embeddings and overrides of direction
    *range(0x2060, 0x2070),  # word joiner, invisible operators, isolates of direction
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),  # tags: an invisible text of its own
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
    """Without escape sequences and characters that steer; a tab becomes four blanks, line ends stay."""
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r\n", "\n").translate(_plain())


def one_line(text: str) -> str:
    r"""`harmless`, and every line end becomes a visible `\n`: the text cannot begin a line."""
    return harmless(text.strip("\n")).replace("\n", "\\n")


def styled(text: str) -> str:
    """`harmless` for text that has holdfast's own colours in it, which stay."""
    if "\x1b" not in text:
        return harmless(text)
    parts = _STYLES.compiled.split(text)
    return "".join(part if index % 2 else harmless(part) for index, part in enumerate(parts))


def json_text(text: str) -> str:
    """JSON that says the same, with the characters that steer written as `\\uXXXX`."""
    return text if text.isascii() else text.translate(_json())


def own_lines(text: str, again: str = "holdfast: ") -> list[str]:
    """`text` as lines of holdfast's own. Only the first begins a message: the others stand under it, moved in.

    `again`: what the others begin with; live lines, between which workers' lines come, repeat the name.
    """
    if not text:
        return []
    first, *rest = harmless(text).rstrip("\n").split("\n")
    return [f"holdfast: {first}", *(f"{again}{'' if line.startswith('  ') else '  '}{line}" for line in rest)]
