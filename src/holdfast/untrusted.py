"""The only module that parses untrusted bytes: sockets, job files, configuration, logs, plugins' answers.

Each reader returns a value or raises `Malformed` with one sentence, and raises no other error. The parsers underneath
raise many kinds of errors: for bad UTF-8, endless numbers, a hundred thousand brackets, or aliases that multiply. Size
and depth are checked before a parser gets the bytes. A test fails if another module calls a parser.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from holdfast.safe_text import one_line
from holdfast.yaml_mistake import excerpt, yaml_mistake

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import UnionType

    import yaml

#: Maximum size of a document in bytes. A report of many thousand attempts has a few MB.
MOST_BYTES = 64 << 20
#: Maximum size in bytes of a file that a person writes: configuration, job file, rules, rows.
MOST_CONFIG_BYTES = 4 << 20
#: Maximum number of nested levels of lists and mappings.
MOST_DEPTH = 64
#: Maximum number of values in one YAML document. An alias counts as many as the value to which it refers.
MOST_NODES = 200_000
#: The end of the year 9999, in seconds since 1970. A later time is invalid.
LATEST_S = 253_402_300_799.0

_WORDS = 300
_JSON_OTHER = bytes(set(range(256)) - set(b'[]{}"'))

T = TypeVar("T")


class Malformed(ValueError):
    """Raised for unusable bytes, with the problem in one line. `line` and `column` count from 1; None: not known.

    `excerpt`: the lines around the problem, each after a line end; empty if they are not known.
    """

    def __init__(self, problem: str, line: int | None = None, column: int | None = None, excerpt: str = "") -> None:
        super().__init__(problem)
        self.excerpt = excerpt
        self.problem = problem
        self.line = line
        self.column = column


@overload
def json_as(data: bytes | str, kind: type[T], *, most_bytes: int = MOST_BYTES) -> T: ...
@overload
def json_as(data: bytes | str, kind: UnionType, *, most_bytes: int = MOST_BYTES) -> Any: ...
def json_as(data: bytes | str, kind: Any, *, most_bytes: int = MOST_BYTES) -> Any:
    """Decode one JSON document of exactly this type, or of one type of a union. Raise `Malformed` for other bytes."""
    _fits(data, most_bytes)
    try:
        _not_too_deep(data)
        return _decoder(kind).decode(data)
    except Malformed:
        raise
    except Exception as error:  # the parser may raise any error on invalid input
        raise Malformed(_said(error, data)) from None


def msgpack_as(data: bytes, kind: Any, *, most_bytes: int) -> Any:
    """Decode one MessagePack value of exactly this type, or of one type of a union. Raise `Malformed` for other bytes.

    A size stated in the bytes allocates no memory until the data has arrived, and Python's recursion limit limits the
    depth.
    """
    _fits(data, most_bytes)
    try:
        return _unpacker(kind).decode(data)
    except Exception as error:  # the parser may raise any error on invalid input
        raise Malformed(_said(error)) from None


def json_value(data: bytes | str, *, most_bytes: int = MOST_BYTES) -> Any:
    """Decode any JSON document into lists, dicts, strings and numbers. Raise `Malformed` for other bytes."""
    _fits(data, most_bytes)
    try:
        _not_too_deep(data)
        return msgspec.json.decode(data)
    except Malformed:
        raise
    except Exception as error:  # the parser may raise any error on invalid input
        raise Malformed(_said(error, data)) from None


def json_leniently(
    data: bytes | str,
    *,
    most_bytes: int = MOST_BYTES,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Decode JSON as `json_value` does, but also accept NaN, control characters in strings, and lone surrogates.

    Lone surrogates become U+FFFD. `pairs`: a function that gets each object's names and values, even if a name is
    repeated. Raise `Malformed` for other bytes.
    """
    _fits(data, most_bytes)
    import json  # imported here, because most runs read no such document before a failure

    try:
        _not_too_deep(data)
        return _whole(json.loads(data, strict=False, object_pairs_hook=pairs))
    except Malformed:
        raise
    except Exception as error:  # the parser may raise any error on invalid input
        raise Malformed(_said(error, data)) from None


def yaml_value(data: bytes | str, *, most_bytes: int = MOST_CONFIG_BYTES) -> Any:
    """Decode one YAML document into lists, dicts, strings and numbers. Raise `Malformed` for other bytes."""
    return _yaml(data, most_bytes, nodes=False)


def yaml_nodes(data: bytes | str, *, most_bytes: int = MOST_CONFIG_BYTES) -> yaml.Node | None:
    """Decode one YAML document into nodes, which know their lines; None for an empty document.

    Raise `Malformed` for other bytes.
    """
    found: yaml.Node | None = _yaml(data, most_bytes, nodes=True)
    return found


def convert(value: Any, kind: type[T], **options: Any) -> T:
    """Convert a decoded value to this type (`msgspec.convert`).

    Raise `Malformed` with msgspec's message if it does not fit.
    """
    try:
        found: T = msgspec.convert(value, kind, **options)
    except Exception as error:  # a number is out of range, or a hook raised an error: the value does not fit
        raise Malformed(_said(error)) from None
    return found


def wrong_time(at: float) -> str:
    """Return why `at` cannot be a time in seconds since 1970; empty if it can be one."""
    if 0 <= at <= LATEST_S:
        return ""
    for unit, in_a_second in (("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)):
        # True if `at`, taken in this unit, is between the years 2001 and 2100.
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
    """Raise `Malformed` for JSON that is nested deeper than `MOST_DEPTH`, even if it is also invalid in another way."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if raw.count(b"[") + raw.count(b"{") <= MOST_DEPTH:
        return
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _JSON_OTHER)
    # Brackets within strings are not levels, so leave the strings out.
    left = b"".join(bare.split(b'"')[::2])
    for _ in range(MOST_DEPTH):
        before = len(left)
        # Remove the innermost level of both kinds of brackets at once. A dot takes the place of each pair, so that no
        # new pair forms.
        left = left.replace(b"[]", b".").replace(b"{}", b".").replace(b".", b"")
        if len(left) == before:
            break
    if left.count(b"[") + left.count(b"{") > MOST_DEPTH or (b"[]" in left or b"{}" in left):
        raise Malformed(_too_deep())


def _too_deep() -> str:
    return f"it nests deeper than {MOST_DEPTH} levels"


def _yaml(data: bytes | str, most_bytes: int, *, nodes: bool) -> Any:
    _fits(data, most_bytes)
    import yaml  # imported here, because a start without a YAML file does not need it

    # The loader in C is ten times as fast and gives the same results.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if isinstance(data, bytes):
            data = data.decode("utf-8-sig")
        _bounded(yaml, data, loader)
        return yaml.compose(data, Loader=loader) if nodes else yaml.load(data, Loader=loader)
    except Malformed:
        raise
    except Exception as error:  # YAML's constructors may raise KeyError, IndexError, ValueError and more
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None)
        if mark is not None and isinstance(data, str):
            raise _marked(data, str(problem), mark, getattr(error, "context_mark", None)) from None
        if isinstance(error, yaml.reader.ReaderError):
            problem = f"character {error.position + 1} (U+{error.character:04X}) is not allowed in YAML"
        said = one_line(str(problem))[:_WORDS] if problem else _said(error)
        raise Malformed(said) from None


def _marked(text: str, problem: str, mark: yaml.Mark, begun: yaml.Mark | None) -> Malformed:
    first = (begun.line, begun.column) if begun is not None else None
    found = yaml_mistake(text, problem, (mark.line, mark.column), first)
    said = one_line(found.said)[:_WORDS]
    return Malformed(said, found.line + 1, found.column + 1, excerpt(text, found))


def _bounded(yaml: Any, data: bytes | str, loader: Any) -> None:
    """Raise `Malformed` for a document that is nested too deeply, or whose aliases multiply its values too much."""
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
        # A parser counts the position within one string, so convert it to the position in the file.
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
    """Replace lone surrogates in `value`, which could not be encoded again. The depth of `value` is limited."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
