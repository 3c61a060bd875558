"""Moments become ages when a message is sent, and moments again when it arrives: no two clocks are ever compared.

A field of type `At` (`holdfast.model.noun_base`) is a moment on the clock of the process that holds the message. `aged`
makes an age of each one, `dated` makes moments on the receiver's clock of them; what a message took on its way makes
them that much later. Where the moments of a type are is found out once, from the type itself.

Kept as they are: a report of the gang protocol, whose deaths `decide/death_dates.py` dates; and what is judged already
(`AttemptRecord`, `JobReport`): its sentences name the owner's times, and it reads the same on every node.
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

#: Nothing in these is translated.
AS_TOLD: frozenset[type] = frozenset({Report, AttemptRecord, JobReport})
#: About a hundred years: an age beyond it, or one that is no number, is taken for none.
LONGEST_S = 3.2e9

M = TypeVar("M")
#: A value and `now`: the same value with each moment in it turned round.
Turn = Callable[[Any, float], Any]

#: Of each struct type that was asked for, the fields that hold moments.
_found: dict[type, tuple[tuple[str, Turn], ...]] = {}


def aged(message: M, now: float) -> M:
    """The message as it is sent at `now`, in seconds on the sender's clock: each moment is an age in seconds.

    A message without moments is returned as it is.
    """
    turned: M = _turned(message, now)
    return turned


def dated(message: M, now: float) -> M:
    """The message as it has arrived at `now`, in seconds on the receiver's clock: each age is a moment."""
    turned: M = _turned(message, now)
    return turned


def moments_of(kind: type) -> tuple[str, ...]:
    """The names of the fields of a struct type that hold moments, or something with moments in it."""
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
    """An age of a moment, and a moment of an age: both are what is left of `now`."""
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
    """What turns the moments of a value of this type; None where there cannot be any. `within`: against circles."""
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
    """For a union: the value itself tells which of the types it has."""
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
