"""Converts the times in a message to ages when it is sent, and the ages to times when it arrives.

So the clocks of two machines are never compared. A field of type `At` (`holdfast.model.noun_base`) is a time on the
monotonic clock of the process that has the message. `aged` turns each time into an age. `dated` turns each age into a
time on the receiver's clock, which is late by the message's delay. The annotations of each type show which fields are
times.

Some messages are not converted. `decide/owner.py` converts the times in a `Report` of the gang protocol.
`AttemptRecord` and `JobReport` keep the owner's times, because their sentences contain them and must be the same on
every node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.gang_protocol import Report
from holdfast.model.noun_base import MONOTONIC

#: The types of messages whose times are not converted.
AS_TOLD: frozenset[type] = frozenset({Report, AttemptRecord, JobReport})
#: The longest age in a message, in seconds: about a hundred years. A greater age, or a value that is no number, counts
#: as 0.
LONGEST_S = 3.2e9

M = TypeVar("M")
#: A function from a value and `now` to the value with its times converted to ages, or its ages to times.
Turn = Callable[[Any, float], Any]

#: A cache: struct type → its fields that contain times, each with the function that converts it.
_found: dict[type, tuple[tuple[str, Turn], ...]] = {}


def aged(message: M, now: float) -> M:
    """Convert each time in a message to an age in seconds.

    now: when the message is sent, in seconds on the sender's clock.
    A message without times is returned unchanged.
    """
    turned: M = _turned(message, now)
    return turned


def dated(message: M, now: float) -> M:
    """Convert each age in a message to a time on the receiver's clock.

    now: when the message arrived, in seconds on the receiver's clock.
    """
    turned: M = _turned(message, now)
    return turned


def moments_of(kind: type) -> tuple[str, ...]:
    """Return the fields of a struct type that contain times, directly or in a nested value."""
    return tuple(name for name, _ in _fields(kind))


def _turned(value: Any, now: float) -> Any:
    changed = {}
    for name, turn in _fields(type(value)):
        before = getattr(value, name)
        if before is None:
            continue
        after = turn(before, now)
        if after is not before:
            changed[name] = after
    return replace(value, **changed) if changed else value


def _moment(value: Any, now: float) -> float:
    """Convert a time to an age, or an age to a time; both are `now - value`."""
    turned: float = now - value
    return turned if -LONGEST_S < turned < LONGEST_S else now


def _fields(kind: type) -> tuple[tuple[str, Turn], ...]:
    found = _found.get(kind)
    if found is None:
        told = inspect.type_info(kind)
        found = _of_struct(told) if isinstance(told, inspect.StructType) else ()
        _found[kind] = found
    return found


def _of_struct(told: inspect.StructType) -> tuple[tuple[str, Turn], ...]:
    if told.cls in AS_TOLD:
        return ()
    turns = ((field.name, _turn_of(field.type, (told.cls,))) for field in told.fields)
    return tuple((name, turn) for name, turn in turns if turn is not None)


def _turn_of(told: inspect.Type, within: tuple[type, ...]) -> Turn | None:
    """Return the function that converts the times in values of a type (`told`).

    Return None if the type contains no times.

    within: the types under examination, so that a recursive type causes no endless recursion.
    """
    match told:
        case inspect.Metadata(extra=extra) if extra == MONOTONIC:
            return _moment
        case inspect.Metadata(type=inner):
            return _turn_of(inner, within)
        case inspect.StructType(cls=kind):
            known = (*within, kind)
            has = kind not in AS_TOLD and (
                kind in within or any(_turn_of(field.type, known) is not None for field in told.fields)
            )
            return _turned if has else None
        case inspect.VarTupleType(item_type=inner):
            return _each(_turn_of(inner, within))
        case inspect.TupleType(item_types=inners):
            return _places([_turn_of(inner, within) for inner in inners])
        case inspect.DictType(value_type=inner):
            return _values(_turn_of(inner, within))
        case inspect.UnionType(types=inners):
            return _either([(inner, _turn_of(inner, within)) for inner in inners])
        case inspect.CollectionType(item_type=inner) if _turn_of(inner, within) is not None:
            raise TypeError(f"moments stand in tuples and dicts, not in a {type(told).__name__}")
        case _:
            return None


def _each(turn: Turn | None) -> Turn | None:
    if turn is None:
        return None

    def turned(values: Any, now: float) -> Any:
        after = tuple([turn(value, now) for value in values])
        return after if any(map(_differ, after, values)) else values

    return turned


def _places(turns: list[Turn | None]) -> Turn | None:
    if not any(turns):
        return None

    def turned(values: Any, now: float) -> Any:
        return tuple(
            value if turn is None or value is None else turn(value, now)
            for turn, value in zip(turns, values, strict=True)
        )

    return turned


def _values(turn: Turn | None) -> Turn | None:
    if turn is None:
        return None

    def turned(values: Any, now: float) -> Any:
        return {key: None if value is None else turn(value, now) for key, value in values.items()}

    return turned


def _either(kinds: list[tuple[inspect.Type, Turn | None]]) -> Turn | None:
    """Return the function that converts a value of a union. It looks at the type of each value."""
    if all(turn is None for _, turn in kinds):
        return None
    by_shape = {_shape(told): turn for told, turn in kinds if turn is not None}
    moment, struct, row, table = (by_shape.get(shape) for shape in (float, msgspec.Struct, tuple, dict))

    def turned(value: Any, now: float) -> Any:
        if isinstance(value, msgspec.Struct):
            turn = struct
        elif isinstance(value, tuple):
            turn = row
        elif isinstance(value, dict):
            turn = table
        elif isinstance(value, float | int):
            turn = moment
        else:
            turn = None
        return value if turn is None else turn(value, now)

    return turned


def _shape(told: inspect.Type) -> type:
    match told:
        case inspect.StructType():
            return msgspec.Struct
        case inspect.VarTupleType() | inspect.TupleType():
            return tuple
        case inspect.DictType():
            return dict
        case _:
            return float


def _differ(one: object, other: object) -> bool:
    return one is not other
