"""Finds checks by name: built-in ones, entry points, Python files, and executables.

A `CheckRef` describes a check without loading it; `load_check` loads it. Code of other authors (a plugin file, an entry
point) is never loaded in the owner's process: `CheckRegistry` gets a `describe_in_child`, which loads it in a child
process.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.check_profiles import CheckKind, CheckRef, Profile, profile
from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.model.check_interface import PreCheckOperator
from holdfast.model.check_results import CheckChoice, InconclusivePolicy

__all__ = [
    "BUILT_IN",
    "COMMON",
    "DEFAULT",
    "GROUP",
    "CheckKind",
    "CheckRef",
    "CheckRegistry",
    "Profile",
    "classes_in",
    "load_check",
    "validated",
]

#: The entry-point group, with entries `name = "package.module:Class"`.
GROUP = "holdfast.checks"

_HERE = "holdfast.observe.checks"

#: Built-in checks by name, written like entry points. They are loaded in the same way as plugins.
BUILT_IN: dict[str, str] = {
    "files": f"{_HERE}.files:Files",
    "disk": f"{_HERE}.disk:Disk",
    "memory": f"{_HERE}.memory:Memory",
    "shm": f"{_HERE}.memory:Shm",
    "limits": f"{_HERE}.limits:Limits",
    "ports": f"{_HERE}.ports:Ports",
    "names": f"{_HERE}.names:Names",
    "clock": f"{_HERE}.clock:Clock",
    "mounts": f"{_HERE}.mounts:Mounts",
    "processes": f"{_HERE}.processes:Processes",
    "leftovers": f"{_HERE}.leftovers:Leftovers",
    "cpu": f"{_HERE}.cpu:Cpu",
    "hogs": f"{_HERE}.processes:Hogs",
    "standing": f"{_HERE}.standing:StandingCheck",
    "driver": f"{_HERE}.driver:Driver",
    "matmul": f"{_HERE}.matmul:Matmul",
    "bandwidth": f"{_HERE}.bandwidth:Bandwidth",
    "collective": f"{_HERE}.collective:Collective",
    "pairs": f"{_HERE}.pairs:Pairs",
    "links": f"{_HERE}.pairs:Links",
}

_WARN = {"failure": "warn"}
#: The checks that run if the user chooses none. They are cheap, run in parallel, and print nothing on a working
#: machine.
DEFAULT: tuple[CheckChoice, ...] = (
    # Only warn without certainty, because an import may find modules that this check cannot find.
    CheckChoice(name="files", params={"program": "certain"}),
    # Only warn, because only the job's user knows how much space the job needs.
    CheckChoice(name="disk", params={"low": "warn"}),
    CheckChoice(name="memory"),
    CheckChoice(name="shm"),
    CheckChoice(name="limits"),
    CheckChoice(name="ports"),
    CheckChoice(name="names"),
    CheckChoice(name="clock"),
    CheckChoice(name="mounts"),
    # The check only warns, because the job can run on the remaining devices.
    CheckChoice(name="standing", params={"devices": "warn"}),
    # Only warn: the processes that the check finds may belong to another job, or may not matter to a job without
    # accelerators.
    CheckChoice(name="processes", params=_WARN),
    CheckChoice(name="leftovers", params=_WARN),
    CheckChoice(name="cpu", params=_WARN),
    CheckChoice(name="driver", params=_WARN),
)


#: Parameters that every check accepts in addition to those that it declares.
COMMON: dict[str, tuple[type, str]] = {
    "timeout": (float, "time for the check with its retries"),
    "retries": (int, "how often a failed check is tried again"),
    "interval": (float, "time between two tries"),
    "inconclusive": (str, "warn or fail: what a crash or time-out means"),
    "failure": (str, "fail or warn: what a failure means for the job"),
}


def load_check(ref: CheckRef) -> type[PreCheckOperator] | Callable[[], PreCheckOperator]:
    """Load the class of a reference.

    This runs code of other authors, so call it only in a process that may crash. Raise BadUsage if there is no usable
    class.
    """
    match ref.kind:
        case CheckKind.BUILT_IN | CheckKind.ENTRY_POINT:
            found = _named(ref.target)
            if not isinstance(found, type):
                raise BadUsage(f"{ref.source}: expected a PreCheckOperator class, found {type(found).__name__}")
            return found
        case CheckKind.FILE:
            classes = classes_in(Path(ref.target))
            return classes[ref.name]
        case CheckKind.EXECUTABLE:
            return partial(_named(f"{_HERE}.executable:Executable"), ref.target)


def _named(target: str) -> Any:
    """Return the object that an entry point `package.module:Class` names."""
    module, _, member = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in member.split(".") if member else ():
        found = getattr(found, part)
    return found


def classes_in(path: Path) -> dict[str, type[PreCheckOperator]]:
    """Execute a Python file. Return a map from class name, in lower case, to the checks that it defines.

    Raise BadUsage if the file cannot be loaded or defines no usable check.
    """
    import importlib.util
    import inspect

    name = "holdfast_plugin_" + "".join(char if char.isalnum() else "_" for char in path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadUsage(f"--plugin {path}: expected a Python file (.py) or an executable")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module by name
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a plugin may raise anything while it loads, so report it as one message
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


#: Returns the profiles of the checks of a reference, loaded in a child process. Raises BadUsage that describes the
#: problem.
Describe = Callable[[CheckRef], list[Profile]]


class CheckRegistry:
    """The checks that can be chosen: built-in ones, those of `--plugin`, and installed entry points.

    `plugins`: files of `--plugin`. `describe_in_child`: returns the profiles of a reference, see `Describe`. Entry
    points are searched only for an unknown name or a list of all names, because the search reads the metadata of every
    installed package.
    """

    def __init__(self, plugins: Iterable[str | os.PathLike[str]] = (), *, describe_in_child: Describe) -> None:
        self._describe = describe_in_child
        self._profiles: dict[str, Profile] = {}
        self._entry_points: dict[str, CheckRef] | None = None
        #: The names of the checks from `--plugin`, in order.
        self.from_plugins: tuple[str, ...] = ()
        for given in plugins:
            self._add(Path(given))

    def _add(self, path: Path) -> None:
        if not path.exists():
            raise BadUsage(f"--plugin {path}: no such file", hint=f"ls -l {path}")
        if path.is_dir():
            raise BadUsage(f"--plugin {path} is a directory; expected a Python file (.py) or an executable")
        path = path.resolve()
        kind = CheckKind.FILE if path.suffix == ".py" else CheckKind.EXECUTABLE
        if kind is CheckKind.EXECUTABLE and not os.access(path, os.X_OK):
            raise BadUsage(
                f"--plugin {path}: expected a Python file (.py) or an executable, and this one is neither",
                hint=f"chmod +x {path}",
            )
        for found in self._describe(CheckRef(name=path.stem.lower(), kind=kind, target=str(path))):
            self._profiles[found.info.name] = found
            self.from_plugins += (found.info.name,)

    def profile(self, name: str, *, in_full: bool = False) -> Profile:
        """Return the profile of the check with this name. Raise BadUsage that suggests the most similar name."""
        if known := self._profiles.get(name):
            return known
        if target := BUILT_IN.get(name):
            ref = CheckRef(name=name, kind=CheckKind.BUILT_IN, target=target)
            by_default = any(choice.name == name for choice in DEFAULT)
            found = profile(ref, load_check(ref), in_full=in_full, by_default=by_default)
        elif "/" in name:
            self._add(Path(name))
            added = self._profiles[self.from_plugins[-1]]
            self._profiles[name] = added
            return added
        elif door_ := self._installed().get(name):
            found = self._describe(door_)[0]
        else:
            raise BadUsage(f"there is no check `{name}`{self._nearest(name)}", hint="holdfast check --list")
        self._profiles[name] = found
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of all checks, built-in ones first."""
        return tuple(dict.fromkeys([*BUILT_IN, *self.from_plugins, *self._installed()]))

    def _installed(self) -> dict[str, CheckRef]:
        if self._entry_points is None:
            from importlib.metadata import entry_points

            self._entry_points = {
                point.name: CheckRef(name=point.name, kind=CheckKind.ENTRY_POINT, target=point.value)
                for point in entry_points(group=GROUP)
                if point.name not in BUILT_IN
            }
        return self._entry_points

    def _nearest(self, name: str) -> str:
        return nearest(name, self.names())


def nearest(name: str, known: Sequence[str], besides: Iterable[str] = ()) -> str:
    """Suggest the most similar name (`; did you mean `disk`?`). If no name is similar, list all known names.

    `known` is searched before `besides`.
    """
    import difflib

    for names in (known, list(besides)):
        if near := difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5):
            return f"; did you mean `{near[0]}`?"
    both = [*known, *besides]
    return f"; there are {', '.join(both)}" if both else "; it takes none"


def validated(found: Profile, params: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Check the parameters of a chosen check: their names, and their types if the check declares types.

    Return the parameters without those of `COMMON`. Raise BadUsage that names the invalid parameter and a similar valid
    one.

    `found`: the check's profile. `params`: the chosen parameters. `where`: their source, for messages.
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
                f"{at}check `{name}` has no parameter `{key}`{nearest(key, known, COMMON)}",
                hint="holdfast check --list",
            )
    if found.ref.kind is CheckKind.BUILT_IN and own:
        check: Any = load_check(found.ref)
        check.convert_params(own, at)
    return own


def _count(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _common(key: str, value: Any, at: str) -> None:
    kind, about = COMMON[key]
    if kind is str:
        if value not in tuple(InconclusivePolicy):
            raise BadUsage(f"{at}: `{key}` is {value!r}; expected warn or fail")
        return
    number = amounts.seconds(value) if kind is float else _count(value)
    if number is None or number < 0:
        expected = f"{amounts.DURATION}, 0 or more" if kind is float else "a number of 0 or more"
        raise BadUsage(f"{at}: `{key}` is {value!r}; expected {expected} ({about})")
