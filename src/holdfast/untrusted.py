"""The one door for bytes that others wrote: sockets, job files, configuration, files in a home, logs, plugins' answers.

Each reader answers with a value, or raises `Malformed` with one sentence. No other error leaves this module: a parser
meets bad UTF-8, numbers without end, a hundred thousand brackets or aliases that multiply, and each raises something
of its own for it. Size and depth are bounded before a parser sees the bytes. A test fails when another module decodes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import UnionType

    import yaml

#: The largest document: a report of many thousand attempts has a few MB.
MOST_BYTES = 64 << 20
#: The largest file that a person writes by hand: configuration, job file, rules, rows.
MOST_CONFIG_BYTES = 4 << 20
#: Levels of lists and mappings inside one another.
MOST_DEPTH = 64
#: Values of one YAML document, each alias counted with all that it stands for.
MOST_NODES = 200_000
#: Seconds since 1970 at the end of the year 9999: no clock shows a later time.
LATEST_S = 253_402_300_799.0

_WORDS = 300
_JSON_OTHER = bytes(set(range(256)) - set(b'[]{}"'))

T = TypeVar("T")


class Malformed(ValueError):
    """What is wrong with the bytes, in one line. `line` and `column` count from 1; None where they are not known."""

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.column = column


@overload
def json_as(data: bytes | str, kind: type[T], *, most_bytes: int = MOST_BYTES) -> T: ...
@overload
def json_as(data: bytes | str, kind: UnionType, *, most_bytes: int = MOST_BYTES) -> Any: ...
def json_as(data: bytes | str, kind: Any, *, most_bytes: int = MOST_BYTES) -> Any:
    """One JSON document of exactly this type, or of one of a union. Raises `Malformed`."""
    _fits(data, most_bytes)
    try:
        _not_too_deep(data)
        return _decoder(kind).decode(data)
    except Malformed:
        raise
    except Exception as error:  # any error of a parser means wrong input
        raise Malformed(_said(error, data)) from None


def msgpack_as(data: bytes, kind: Any, *, most_bytes: int) -> Any:
    """One value in MessagePack of exactly this type, or of one of a union. Raises `Malformed`.

    A size that it claims costs nothing until the bytes are there, and depth ends at Python's own limit.
    """
    _fits(data, most_bytes)
    try:
        return _unpacker(kind).decode(data)
    except Exception as error:  # any error of a parser means wrong input
        raise Malformed(_said(error)) from None


def json_value(data: bytes | str, *, most_bytes: int = MOST_BYTES) -> Any:
    """Any JSON document, as lists, dicts, texts and numbers. Raises `Malformed`."""
    _fits(data, most_bytes)
    try:
        _not_too_deep(data)
        return msgspec.json.decode(data)
    except Malformed:
        raise
    except Exception as error:  # any error of a parser means wrong input
        raise Malformed(_said(error, data)) from None


def json_leniently(
    data: bytes | str,
    *,
    most_bytes: int = MOST_BYTES,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """As `json_value`, with what Python's own JSON lets through: NaN, control characters in texts, half characters.

    Half characters (lone surrogates) become U+FFFD. `pairs` gets each object's names and values, repeated names
    included. Raises `Malformed`.
    """
    _fits(data, most_bytes)
    import json  # a run reads such documents only after a failure

    try:
        _not_too_deep(data)
        return _whole(json.loads(data, strict=False, object_pairs_hook=pairs))
    except Malformed:
        raise
    except Exception as error:  # any error of a parser means wrong input
        raise Malformed(_said(error, data)) from None


def yaml_value(data: bytes | str, *, most_bytes: int = MOST_CONFIG_BYTES) -> Any:
    """One YAML document, as lists, dicts, texts and numbers. Raises `Malformed`."""
    return _yaml(data, most_bytes, nodes=False)


def yaml_nodes(data: bytes | str, *, most_bytes: int = MOST_CONFIG_BYTES) -> yaml.Node | None:
    """One YAML document as nodes, which know their lines; None for an empty one. Raises `Malformed`."""
    found: yaml.Node | None = _yaml(data, most_bytes, nodes=True)
    return found


def convert(value: Any, kind: type[T], **options: Any) -> T:
    """A value that was read here, as this type (`msgspec.convert`). Raises `Malformed` with msgspec's words."""
    try:
        found: T = msgspec.convert(value, kind, **options)
    except Exception as error:  # a number out of range, or what a hook raises: the value does not fit
        raise Malformed(_said(error)) from None
    return found


def wrong_time(at: float) -> str:
    """Why `at` cannot be a time in seconds since 1970; empty where it can be one."""
    if 0 <= at <= LATEST_S:
        return ""
    for unit, in_a_second in (("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)):
        # From 2001 to 2100 in that unit.
        if 1e9 <= at / in_a_second <= 4.1e9:
            return f"its time {at:g} looks like {unit}; seconds since 1970 were expected, {at / in_a_second:.0f}"
    return f"its time {at:g} is no time; seconds since 1970 were expected, such as 1767225600"


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@functools.cache
def _unpacker(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _fits(data: bytes | str, most_bytes: int) -> None:
    if len(data) > most_bytes:
        raise Malformed(f"it has {len(data)} bytes; at most {most_bytes} were expected")


def _not_too_deep(data: bytes | str) -> None:
    """Raises `Malformed` for JSON that nests deeper than `MOST_DEPTH`, whether the rest of it is right or not."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if raw.count(b"[") + raw.count(b"{") <= MOST_DEPTH:
        return
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _JSON_OTHER)
    # Brackets inside of texts are no levels.
    left = b"".join(bare.split(b'"')[::2])
    for _ in range(MOST_DEPTH):
        before = len(left)
        # The innermost level goes, of both kinds at once: a mark keeps what stood around them apart until then.
        left = left.replace(b"[]", b".").replace(b"{}", b".").replace(b".", b"")
        if len(left) == before:
            break
    if left.count(b"[") + left.count(b"{") > MOST_DEPTH or (b"[]" in left or b"{}" in left):
        raise Malformed(_too_deep())


def _too_deep() -> str:
    return f"it nests deeper than {MOST_DEPTH} levels"


def _yaml(data: bytes | str, most_bytes: int, *, nodes: bool) -> Any:
    _fits(data, most_bytes)
    import yaml  # a start without a YAML file does not import it

    # Of the two, the one in C: ten times as fast, and with the same results.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if isinstance(data, bytes):
            data = data.decode("utf-8-sig")
        _bounded(yaml, data, loader)
        return yaml.compose(data, Loader=loader) if nodes else yaml.load(data, Loader=loader)
    except Malformed:
        raise
    except Exception as error:  # YAML's constructors raise KeyError, IndexError, ValueError and more for wrong values
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None)
        if isinstance(error, yaml.reader.ReaderError):
            problem = f"character {error.position + 1} (U+{error.character:04X}) is not allowed in YAML"
        said = one_line(str(problem))[:_WORDS] if problem else _said(error)
        raise Malformed(said, mark and mark.line + 1, mark and mark.column + 1) from None


def _bounded(yaml: Any, data: bytes | str, loader: Any) -> None:
    """Raises `Malformed` for a document that nests too deep, or that its aliases multiply beyond all measure."""
    sizes: dict[str, int] = {}
    path: list[tuple[str | None, int]] = []
    nodes = 0
    for event in yaml.parse(data, Loader=loader):
        mark = event.start_mark
        if isinstance(event, yaml.CollectionStartEvent):
            nodes += 1
            path.append((event.anchor, nodes))
            if len(path) > MOST_DEPTH:
                raise Malformed(_too_deep(), mark.line + 1, mark.column + 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, began = path.pop()
            if anchor is not None:
                sizes[anchor] = nodes - began + 1
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in path):
                raise Malformed(f"the alias *{event.anchor} stands inside of itself", mark.line + 1, mark.column + 1)
            nodes += sizes.get(event.anchor, 1)
        if nodes > MOST_NODES:
            raise Malformed(
                f"it has more than {MOST_NODES} values, its aliases counted with all that they stand for",
                mark.line + 1,
                mark.column + 1,
            )


def _said(error: Exception, data: bytes | str = b"") -> str:
    if isinstance(error, UnicodeDecodeError) and isinstance(data, bytes):
        # A parser counts from the beginning of one text; people count from the beginning of the file.
        try:
            data.decode()
        except UnicodeDecodeError as whole:
            error = whole
    match error:
        case RecursionError():
            return _too_deep()
        case MemoryError():
            return "it does not fit into memory"
        case UnicodeDecodeError():
            return f"not a text file in UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
        case UnicodeEncodeError():
            return f"character {error.start + 1} is half a character (a lone surrogate)"
    said = one_line(str(error)) or type(error).__name__
    return said if len(said) <= _WORDS else said[: _WORDS - 1] + "…"


def _whole(value: Any) -> Any:
    """`value` without lone surrogates, which nothing could write again. Its depth is bounded."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
