"""Bars, as text and as a PNG file: a picture for a page, without a plotting library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

_WIDTH = 40
_GLYPHS = {
    " ": "00000 00000 00000 00000 00000 00000 00000", "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110", "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110", "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110", "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000", "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100", ".": "00000 00000 00000 00000 00000 01100 01100",
    ",": "00000 00000 00000 00000 01100 00100 01000", ":": "00000 01100 01100 00000 01100 01100 00000",
    "-": "00000 00000 00000 11111 00000 00000 00000", "_": "00000 00000 00000 00000 00000 00000 11111",
    "a": "00000 00000 01110 00001 01111 10001 01111", "b": "10000 10000 11110 10001 10001 10001 11110",
    "c": "00000 00000 01111 10000 10000 10000 01111", "d": "00001 00001 01111 10001 10001 10001 01111",
    "e": "00000 00000 01110 10001 11111 10000 01111", "f": "00110 01001 01000 11100 01000 01000 01000",
    "g": "00000 00000 01111 10001 01111 00001 01110", "h": "10000 10000 11110 10001 10001 10001 10001",
    "i": "00100 00000 01100 00100 00100 00100 01110", "j": "00010 00000 00110 00010 00010 10010 01100",
    "k": "10000 10000 10010 10100 11000 10100 10010", "l": "01100 00100 00100 00100 00100 00100 01110",
    "m": "00000 00000 11010 10101 10101 10101 10101", "n": "00000 00000 11110 10001 10001 10001 10001",
    "o": "00000 00000 01110 10001 10001 10001 01110", "p": "00000 00000 11110 10001 11110 10000 10000",
    "q": "00000 00000 01111 10001 01111 00001 00001", "r": "00000 00000 10110 11001 10000 10000 10000",
    "s": "00000 00000 01111 10000 01110 00001 11110", "t": "01000 01000 11100 01000 01000 01001 00110",
    "u": "00000 00000 10001 10001 10001 10011 01101", "v": "00000 00000 10001 10001 10001 01010 00100",
    "w": "00000 00000 10001 10101 10101 10101 01010", "x": "00000 00000 10001 01010 00100 01010 10001",
    "y": "00000 00000 10001 10001 01111 00001 01110", "z": "00000 00000 11111 00010 00100 01000 11111",
}  # fmt: skip
"""A font of 5 × 7 dots. Capitals are drawn small; what is missing is drawn as a space."""
_SCALE = 2
_ADVANCE = 6 * _SCALE
_LINE = 12 * _SCALE


def bars_text(values: Mapping[str, float], unit: str) -> str:
    """A line a value, the longest bar `_WIDTH` wide; every value shows at least a sliver."""
    if not values:
        return "nothing to draw"
    widest, most = max(map(len, values)), max(values.values())
    bars = {name: "█" * round(_WIDTH * value / most) or "▏" for name, value in values.items()}
    return "\n".join(f"{name:<{widest}}  {bars[name]} {value:.2f} {unit}" for name, value in values.items())


def bars_png(title: str, values: Mapping[str, float]) -> bytes:
    """The same as a PNG file: grey bars on white, a name in front of each and its value behind."""
    most = max(values.values(), default=1.0)
    left = (max(map(len, values), default=0) + 2) * _ADVANCE
    width, height = left + 400 + 8 * _ADVANCE, (len(values) + 3) * _LINE
    dots = [bytearray(b"\xff" * width) for _ in range(height)]
    _write(dots, title, _ADVANCE, _LINE // 2)
    for row, (name, value) in enumerate(values.items(), 2):
        top, long = row * _LINE, max(2, round(400 * value / most))
        _write(dots, name, _ADVANCE, top)
        for line in dots[top : top + 7 * _SCALE]:
            line[left : left + long] = b"\x70" * long
        _write(dots, f"{value:.2f}", left + long + _ADVANCE, top)
    packed = zlib.compress(b"".join(b"\0" + bytes(line) for line in dots), 9)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + _chunk(b"IDAT", packed)
        + _chunk(b"IEND", b"")
    )


def _write(dots: list[bytearray], text: str, x: int, y: int) -> None:
    for place, letter in enumerate(text.lower()):
        for down, line in enumerate(_GLYPHS.get(letter, _GLYPHS[" "]).split()):
            for right, dot in enumerate(line):
                if dot == "1":
                    at = x + place * _ADVANCE + right * _SCALE
                    for row in dots[y + down * _SCALE : y + (down + 1) * _SCALE]:
                        row[at : at + _SCALE] = b"\0" * len(row[at : at + _SCALE])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
