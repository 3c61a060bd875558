"""Where checks come from: built in, an entry point, a Python file, any executable. All enter by the same door.

A `Door` says what to load without loading it; `open_door` loads it. Foreign code (a plugin file, an entry point) is
never loaded in the supervisor: `Shelf` is handed a `scout` that looks through such a door in a process of its own.
"""

from __future__ import annotations

import enum
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import BadUsage
from holdfast.model.base import Noun
from holdfast.model.checks import CheckChoice, CheckInfo, InconclusivePolicy, ParamInfo
from holdfast.model.precheck import PreCheckOperator

GROUP = "holdfast.checks"
"""The entry-point group: `name = "package.module:Class"`."""

_HERE = "holdfast.observe.checks"

BUILT_IN: dict[str, str] = {
    "files": f"{_HERE}.files:Files",
    "disk": f"{_HERE}.disk:Disk",
    "memory": f"{_HERE}.memory:Memory",
    "shm": f"{_HERE}.shm:Shm",
    "limits": f"{_HERE}.limits:Limits",
    "ports": f"{_HERE}.ports:Ports",
    "names": f"{_HERE}.names:Names",
    "clock": f"{_HERE}.clock:Clock",
    "mounts": f"{_HERE}.mounts:Mounts",
    "processes": f"{_HERE}.processes:Processes",
    "leftovers": f"{_HERE}.leftovers:Leftovers",
    "cpu": f"{_HERE}.cpu:Cpu",
    "hogs": f"{_HERE}.hogs:Hogs",
    "standing": f"{_HERE}.standing:StandingCheck",
    "driver": f"{_HERE}.driver:Driver",
    "matmul": f"{_HERE}.matmul:Matmul",
    "bandwidth": f"{_HERE}.bandwidth:Bandwidth",
    "collective": f"{_HERE}.collective:Collective",
    "pairs": f"{_HERE}.pairs:Pairs",
}
"""Built-in checks by name, in entry-point notation: they have no other way in than a plugin has."""

DEFAULT: tuple[CheckChoice, ...] = (
    # A program that does not parse or lacks a module is explained best by its own exit: a note, not a failure.
    CheckChoice(name="files", params={"program": "warn"}),
    *(
        CheckChoice(name=name)
        for name in (
            "disk", "memory", "shm", "limits", "ports", "names", "clock", "mounts", "processes", "leftovers", "cpu",
            "standing", "driver",
        )
    ),
)  # fmt: skip
"""What runs where nothing is chosen: cheap, side by side, and silent on a machine that can work."""


class Kind(enum.StrEnum):
    """By which of the doors a check comes in."""

    BUILT_IN = "built-in"
    ENTRY_POINT = "entry point"
    FILE = "plugin file"
    EXECUTABLE = "executable"


class Door(Noun, frozen=True, kw_only=True):
    """One check, named but not loaded."""

    name: str
    kind: Kind
    target: str
    """`module:Class`, or a path."""
    member: str = ""
    """FILE: the class within the file."""

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return self.kind.value if self.kind is Kind.BUILT_IN else f"{self.kind.value} {self.target}"


class Profile(Noun, frozen=True, kw_only=True):
    """What a check says of itself: enough to plan it without loading it again."""

    door: Door
    info: CheckInfo
    retries: int
    interval_s: float
    alone: bool
    inconclusive: str | None = None
    lane: str = ""
    """Checks of one lane share a process, one after another; empty: a process of its own."""


COMMON: dict[str, tuple[type, str]] = {
    "timeout": (float, "seconds for the check with its retries"),
    "retries": (int, "how often a failed check is tried again"),
    "interval": (float, "seconds between two tries"),
    "inconclusive": (str, "warn or fail: what a crash or time-out means"),
}
"""Parameters that every check takes besides its own."""


def open_door(door: Door) -> type[PreCheckOperator] | Callable[[], PreCheckOperator]:
    """The class behind a door. Runs foreign code: only in a process that may die of it.

    Raises BadUsage where there is nothing that can be used behind it.
    """
    match door.kind:
        case Kind.BUILT_IN | Kind.ENTRY_POINT:
            module, _, member = door.target.partition(":")
            found: Any = importlib.import_module(module)
            for part in member.split(".") if member else ():
                found = getattr(found, part)
            if not isinstance(found, type):
                raise BadUsage(f"{door.source}: expected a PreCheckOperator class, found {type(found).__name__}")
            return found
        case Kind.FILE:
            classes = classes_in(Path(door.target))
            return classes[door.name]
        case Kind.EXECUTABLE:
            from functools import partial

            from holdfast.observe.checks.executable import Executable

            return partial(Executable, door.target)


def classes_in(path: Path) -> dict[str, type[PreCheckOperator]]:
    """The checks a Python file defines, by class name in lower case. Executes the file.

    Raises BadUsage where it cannot be loaded, or defines no check that can be used.
    """
    import importlib.util
    import inspect
    import sys

    name = "holdfast_plugin_" + "".join(char if char.isalnum() else "_" for char in path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadUsage(f"--plugin {path}: expected a Python file (.py) or an executable")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up by name
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a plugin raises while loading, the answer is one message that names it
        where = getattr(error, "lineno", None) or _line_in(error, path)
        at = f" line {where}" if where else ""
        raise BadUsage(f"--plugin {path}{at}: {type(error).__name__}: {error}") from error
    found: dict[str, type[PreCheckOperator]] = {}
    unfinished: list[str] = []
    for member in vars(module).values():
        if not isinstance(member, type) or not issubclass(member, PreCheckOperator) or member.__module__ != name:
            continue
        if inspect.isabstract(member):
            unfinished.append(f"{member.__name__} lacks {', '.join(sorted(member.__abstractmethods__))}")
        else:
            found[member.__name__.lower()] = member
    if not found:
        why = "; ".join(unfinished) or "no class derives from PreCheckOperator"
        raise BadUsage(f"--plugin {path}: {why}; expected a class with check() and failed_actions()")
    return found


def _line_in(error: BaseException, path: Path) -> int | None:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def profile(
    door: Door, check: type[PreCheckOperator] | Callable[[], PreCheckOperator], *, in_full: bool = True
) -> Profile:
    """What a loaded check says of itself. Not `in_full`: its parameters by name only, which is quicker."""
    cls: Any = check if isinstance(check, type) else check()
    interval = float(cls.get_running_interval_secs())
    params, is_open = _params(cls, in_full)
    question = cls.question or _first_line(cls.__doc__ if isinstance(check, type) else "") or "(says nothing of itself)"
    times = getattr(cls, "get_retry_times", cls.get_retry_limit_times)  # later DLRover's name for the same limit
    return Profile(
        door=door,
        info=CheckInfo(
            name=door.name,
            question=question,
            cost=cls.cost,
            source=door.source,
            by_default=door.kind is Kind.BUILT_IN and any(choice.name == door.name for choice in DEFAULT),
            needs_gang=bool(getattr(cls, "needs_gang", False)),
            during_job=interval > 0,
            interval_s=interval,
            limit_s=float(cls.get_time_limit_secs()),
            params=params,
            open_params=is_open,
        ),
        retries=int(times()),
        interval_s=float(cls.get_retry_interval_secs()),
        alone=not cls.independent,
        inconclusive=cls.inconclusive,
        lane=str(getattr(cls, "lane", "")) if door.kind is Kind.BUILT_IN else "",
    )


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else ""


_CONTEXT = frozenset({"self", "job", "nodes", "attempt", "now", "site"})


def _params(cls: Any, in_full: bool) -> tuple[tuple[ParamInfo, ...], bool]:
    """A check's own parameters: its `Params` struct, else what `check` names besides the context."""
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
    """The fields of a `Params` struct with their defaults and descriptions."""
    import msgspec

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


Scout = Callable[[Door], list[Profile]]
"""Looks through a door in a process of its own. Raises BadUsage with what is wrong behind it."""


class Shelf:
    """Every check that can be chosen: the built-in ones, those of `--plugin`, and installed entry points.

    Entry points are looked for only when a name is not known otherwise, or all are listed: finding them reads the
    metadata of every installed package.
    """

    def __init__(self, plugins: Iterable[str | os.PathLike[str]] = (), *, scout: Scout) -> None:
        self._scout = scout
        self._profiles: dict[str, Profile] = {}
        self._entry_points: dict[str, Door] | None = None
        self.from_plugins: tuple[str, ...] = ()
        """The checks that `--plugin` brought, in order."""
        for given in plugins:
            self._add(Path(given))

    def _add(self, path: Path) -> None:
        if not path.exists():
            raise BadUsage(f"--plugin {path}: no such file")
        if path.is_dir():
            raise BadUsage(f"--plugin {path} is a directory; expected a Python file (.py) or an executable")
        path = path.resolve()
        kind = Kind.FILE if path.suffix == ".py" else Kind.EXECUTABLE
        if kind is Kind.EXECUTABLE and not os.access(path, os.X_OK):
            raise BadUsage(
                f"--plugin {path}: expected a Python file (.py) or an executable, and this one is neither",
                hint=f"chmod +x {path}",
            )
        for found in self._scout(Door(name=path.stem.lower(), kind=kind, target=str(path))):
            self._profiles[found.info.name] = found
            self.from_plugins += (found.info.name,)

    def profile(self, name: str, *, in_full: bool = False) -> Profile:
        """The check of this name. Raises BadUsage naming the nearest that exists."""
        if known := self._profiles.get(name):
            return known
        if target := BUILT_IN.get(name):
            door = Door(name=name, kind=Kind.BUILT_IN, target=target)
            found = profile(door, open_door(door), in_full=in_full)
        elif "/" in name:
            self._add(Path(name))
            added = self._profiles[self.from_plugins[-1]]
            self._profiles[name] = added
            return added
        elif door_ := self._installed().get(name):
            found = self._scout(door_)[0]
        else:
            raise BadUsage(f"there is no check `{name}`{self._nearest(name)}", hint="holdfast check --list")
        self._profiles[name] = found
        return found

    def names(self) -> tuple[str, ...]:
        """Every check that can be chosen, built-in ones first."""
        return tuple(dict.fromkeys([*BUILT_IN, *self.from_plugins, *self._installed()]))

    def _installed(self) -> dict[str, Door]:
        if self._entry_points is None:
            from importlib.metadata import entry_points

            self._entry_points = {
                point.name: Door(name=point.name, kind=Kind.ENTRY_POINT, target=point.value)
                for point in entry_points(group=GROUP)
                if point.name not in BUILT_IN
            }
        return self._entry_points

    def _nearest(self, name: str) -> str:
        return nearest(name, self.names())


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean `disk`?`, or all that is known where nothing is near."""
    import difflib

    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; there are {', '.join(known)}" if known else "; it takes none"


def validated(found: Profile, params: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """A choice's parameters, checked: the name, and the type where the check declares one.

    Raises BadUsage naming the parameter and the nearest that exists.
    """
    name = found.info.name
    at = f"{where}: " if where else ""
    known = tuple(param.name for param in found.info.params)
    own: dict[str, Any] = {}
    for key, value in params.items():
        if key in COMMON and key not in known:
            _common(key, value, f"{at}check `{name}`")
        elif key in known or found.info.open_params:
            own[key] = value
        else:
            raise BadUsage(
                f"{at}check `{name}` has no parameter `{key}`{nearest(key, (*known, *COMMON))}",
                hint="holdfast check --list",
            )
    if found.door.kind is Kind.BUILT_IN and own:
        from holdfast.observe.checks.base import convert_params

        convert_params(open_door(found.door), own, at)
    return own


def _common(key: str, value: Any, at: str) -> None:
    kind, about = COMMON[key]
    if key == "inconclusive":
        if value not in tuple(InconclusivePolicy):
            raise BadUsage(f"{at}: `inconclusive` is {value!r}; expected warn or fail")
        return
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or number < 0 or number != number:
        raise BadUsage(f"{at}: `{key}` is {value!r}; expected a number of 0 or more ({about})")
