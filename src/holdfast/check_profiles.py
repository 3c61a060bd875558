"""Profiles of checks: where a check comes from, its time limits, and its parameters."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.model.check_interface import PreCheckOperator
from holdfast.model.check_results import CheckInfo, ParamInfo
from holdfast.model.noun_base import Noun


class CheckKind(enum.StrEnum):
    """The way in which a check was found: built in, by an entry point, in a file, or as an executable."""

    BUILT_IN = "built-in"
    ENTRY_POINT = "entry point"
    FILE = "plugin file"
    EXECUTABLE = "executable"


class CheckRef(Noun, frozen=True, kw_only=True):
    """A reference to a check that is not loaded yet."""

    name: str
    kind: CheckKind
    #: Where the check is: `module:Class`, or the path of a file.
    target: str
    #: The name of the class in the file, for references of the kind `FILE`; "" for the others.
    member: str = ""

    @property
    def source(self) -> str:
        """The source of the check, for people to read."""
        return self.kind.value if self.kind is CheckKind.BUILT_IN else f"{self.kind.value} {self.target}"


class Profile(Noun, frozen=True, kw_only=True):
    """The properties of a check that are needed to plan it, so that the check need not be loaded again."""

    ref: CheckRef
    info: CheckInfo
    retries: int
    interval_s: float
    alone: bool
    inconclusive: str | None = None
    #: Checks with the same lane run in one process, one after another. "" gives the check a process of its own.
    lane: str = ""


def profile(
    ref: CheckRef,
    check: type[PreCheckOperator] | Callable[[], PreCheckOperator],
    *,
    in_full: bool = True,
    by_default: bool = False,
) -> Profile:
    """Return the profile of a loaded check.

    `in_full` False: return only the names of its parameters, which is quicker.
    `by_default`: the check runs if the user chooses no checks.
    """
    # A built-in class is used without an instance. A plugin is instantiated, because its class may have plain methods
    # instead of class methods.
    cls: Any = check if ref.kind is CheckKind.BUILT_IN else check()
    interval = float(cls.get_running_interval_secs())
    params, is_open = _params(cls, in_full)
    question = cls.question or _first_line(cls.__doc__ if isinstance(check, type) else "") or "(says nothing of itself)"
    tries = getattr(cls, "get_retry_times", None)
    # DLRover's `get_retry_times` includes the first try; `get_retry_limit_times` only counts retries.
    retries = int(cls.get_retry_limit_times()) if tries is None else max(0, int(tries()) - 1)
    return Profile(
        ref=ref,
        info=CheckInfo(
            name=ref.name,
            question=question,
            cost=cls.cost,
            source=ref.source,
            by_default=by_default,
            needs_gang=bool(getattr(cls, "needs_gang", False)),
            during_job=interval > 0,
            interval_s=interval,
            limit_s=float(cls.get_time_limit_secs()),
            params=params,
            open_params=is_open,
        ),
        retries=retries,
        interval_s=float(cls.get_retry_interval_secs()),
        alone=not cls.independent,
        inconclusive=cls.inconclusive,
        lane=str(getattr(cls, "lane", "")) if ref.kind is CheckKind.BUILT_IN else "",
    )


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else ""


_CONTEXT = frozenset({"self", "job", "nodes", "attempt", "now", "site"})


def _params(cls: Any, in_full: bool) -> tuple[tuple[ParamInfo, ...], bool]:
    """Return a check's parameters: those of its `Params` struct, or those of its method `check` without the context.

    Also return whether the check accepts any other parameter.
    """
    struct = getattr(cls, "Params", None)
    if struct is not None and not in_full:
        return tuple(ParamInfo(name=name, type="") for name in struct.__struct_encode_fields__), False
    if struct is not None:
        return struct_params(struct), False
    import inspect

    found: list[ParamInfo] = []
    is_open = False
    for name, param in inspect.signature(cls.check).parameters.items():
        if param.kind is inspect.Parameter.VAR_KEYWORD:
            is_open = True
        elif param.kind is inspect.Parameter.VAR_POSITIONAL or name in _CONTEXT:
            continue
        else:
            given = param.default is not inspect.Parameter.empty
            hint = "" if param.annotation is inspect.Parameter.empty else str(param.annotation)
            found.append(ParamInfo(name=name, type=hint, default=repr(param.default) if given else None))
    return tuple(found), is_open


def struct_params(struct: Any) -> tuple[ParamInfo, ...]:
    """Return the fields of a `Params` struct with their defaults and descriptions."""
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    found = []
    for field in info.fields:
        about, kind = "", field.type
        if isinstance(kind, msgspec.inspect.Metadata):
            about = str((kind.extra_json_schema or {}).get("description", ""))
            kind = kind.type
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if isinstance(default, int) and not isinstance(default, bool):
            default = int(default)  # a size is a subclass of int that JSON cannot encode, so convert it
        found.append(
            ParamInfo(
                name=field.encode_name,
                type=_type_name(kind),
                default=None if default is msgspec.NODEFAULT else default,
                about=about,
            )
        )
    return tuple(found)


def _type_name(kind: Any) -> str:
    import msgspec.inspect as types

    match kind:
        case types.CustomType(cls=cls):
            return str(getattr(cls, "words", cls.__name__.lower()))
        case types.VarTupleType(item_type=item):
            return f"list of {_type_name(item)}"
        case types.LiteralType(values=values):
            return " or ".join(str(value) for value in values)
        case types.UnionType(types=members):
            return " or ".join(_type_name(member) for member in members)
        case types.FloatType():
            return "number"
        case types.IntType():
            return "whole number"
        case types.BoolType():
            return "true or false"
        case types.StrType():
            return "text"
        case types.NoneType():
            return "nothing"
        case _:
            return type(kind).__name__.removesuffix("Type").lower()
