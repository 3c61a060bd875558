"""Reads a pickle of plain containers without the `pickle` module. It looks up no class and calls no function.

It accepts only the opcodes for None, booleans, numbers, text, bytes, lists, tuples, dictionaries and the memo. The memo
is a dictionary, so that a large index does not use much memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from holdfast.untrusted import Malformed

MOST_BYTES = 32 << 20
#: At most this many opcodes of a document are run, which takes a few seconds.
MOST_STEPS = 4_000_000
#: A whole number may have this many bytes. A time in nanoseconds has eight.
MOST_DIGITS = 16


class _Mark:
    """The beginning of a tuple, list or dictionary on the stack."""


_MARK = _Mark()


def plain_pickle(data: bytes) -> Any:
    """Return the pickled value. Raises `Malformed` if the data is too large, or is no pickle of plain containers."""
    if len(data) > MOST_BYTES:
        raise Malformed(f"{len(data)} bytes, more than {MOST_BYTES}")
    try:
        return _Machine(data).run()
    except (IndexError, KeyError, TypeError, ValueError, struct.error, RecursionError) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed(f"not a pickle of plain values: {type(error).__name__}") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MOST_STEPS):
            code = self._bytes(1)[0]
            if code == 0x2E:  # the opcode STOP
                (value,) = self._stack
                return value
            step = _STEPS.get(code)
            if step is None:
                raise Malformed(f"opcode {code:#x} at byte {self._at - 1} is not one of plain values")
            step(self)
        raise Malformed(f"more than {MOST_STEPS} steps")

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise Malformed(f"cut off at byte {len(self._data)}")
        self._at += count
        return found

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._bytes(struct.calcsize(form)))[0])

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _since_mark(self) -> list[Any]:
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                found = self._stack[place + 1 :]
                del self._stack[place:]
                return found
        raise Malformed("no mark")

    def _top(self, kind: type) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise Malformed(f"a {kind.__name__} was expected")
        return value

    def long(self) -> None:
        size = self._bytes(1)[0]
        if size > MOST_DIGITS:
            raise Malformed(f"a number of {size} bytes")
        self._push(int.from_bytes(self._bytes(size), "little", signed=True))

    def text(self, form: str) -> None:
        self._push(self._bytes(self._number(form)).decode("utf-8", "replace"))

    def raw(self, form: str) -> None:
        self._push(self._bytes(self._number(form)))

    def whole(self, form: str) -> None:
        self._push(self._number(form))

    def real(self) -> None:
        self._push(struct.unpack(">d", self._bytes(8))[0])

    def const(self, value: Any) -> None:
        self._push(value)

    def empty(self, kind: type) -> None:
        self._push(kind())

    def tuple_of(self, count: int) -> None:
        found = tuple(self._stack[len(self._stack) - count :])
        if len(found) < count or any(item is _MARK for item in found):
            raise Malformed("a tuple of too few")
        del self._stack[len(self._stack) - count :]
        self._push(found)

    def tuple_since(self) -> None:
        self._push(tuple(self._since_mark()))

    def append(self) -> None:
        value = self._stack.pop()
        self._top(list).append(value)

    def appends(self) -> None:
        found = self._since_mark()
        self._top(list).extend(found)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._top(dict)[key] = value

    def set_items(self) -> None:
        found = self._since_mark()
        self._top(dict).update(zip(found[::2], found[1::2], strict=True))

    def keep(self, form: str) -> None:
        self._memo[self._number(form)] = self._stack[-1]

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def recall(self, form: str) -> None:
        self._push(self._memo[self._number(form)])

    def skip(self, count: int) -> None:
        self._bytes(count)


_STEPS: dict[int, Callable[[_Machine], None]] = {
    0x80: lambda m: m.skip(1),  # the opcode PROTO
    0x95: lambda m: m.skip(8),  # the opcode FRAME
    ord("N"): lambda m: m.const(None),
    0x88: lambda m: m.const(True),
    0x89: lambda m: m.const(False),
    ord("K"): lambda m: m.whole("<B"),
    ord("M"): lambda m: m.whole("<H"),
    ord("J"): lambda m: m.whole("<i"),
    0x8A: _Machine.long,
    ord("G"): _Machine.real,
    ord("X"): lambda m: m.text("<I"),
    0x8C: lambda m: m.text("<B"),
    ord("C"): lambda m: m.raw("<B"),
    ord("B"): lambda m: m.raw("<I"),
    ord("("): lambda m: m.const(_MARK),
    ord("]"): lambda m: m.empty(list),
    ord("}"): lambda m: m.empty(dict),
    ord(")"): lambda m: m.empty(tuple),
    ord("t"): _Machine.tuple_since,
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("a"): _Machine.append,
    ord("e"): _Machine.appends,
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
    ord("q"): lambda m: m.keep("<B"),
    ord("r"): lambda m: m.keep("<I"),
    0x94: _Machine.memoize,
    ord("h"): lambda m: m.recall("<B"),
    ord("j"): lambda m: m.recall("<I"),
}
