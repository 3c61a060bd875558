"""Runs the script's imports in the prewarmed process. Each large import can be undone."""

from __future__ import annotations

import os
import sys

from . import fork_safety
from .fork_retreat import Retreat, torch_part
from .warning_filters import Filters

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

#: An unsafe import is stored with at most this many modules of torch. The next prewarmed process imports them in its
#: place.
MOST_MODULES = 600


class Unfit(Exception):
    """Raised if workers cannot be forked from this process. `lesson`: the unsafe import, for the next prewarmed
    process.
    """

    def __init__(self, why: str, lesson: dict[str, Any] | None = None) -> None:
        super().__init__(why)
        self.lesson = lesson


class Imports:
    """Runs the imports of a script. It undoes an import that makes forks unsafe, if other imports remain useful."""

    def __init__(self, control: Any, config: dict[str, Any], printed: tuple[int, int]) -> None:
        """Start without imports. `control`: the socket to the supervisor. `config`: the supervisor's first message.
        `printed`: the fds of the files that receive stdout and stderr."""
        self._module: str | None = config["module"]
        self._preload: list[str] = config["preload"]
        self._per_worker: frozenset[str] = frozenset(config["per_worker"])
        self._ours: str = config["ours"]
        self._lesson: dict[str, Any] | None = config["lesson"]
        self._retreat = Retreat(control, config["supervisor"], printed)
        #: The modules imported so far.
        self._names: list[str] = []
        #: The modules in `sys.modules` before the last import that can be undone.
        self._known: frozenset[str] = frozenset()
        #: The number of imports before the last one that can be undone.
        self._kept = 0
        #: The index of the last import that can be undone, among the script's steps.
        self._doing = 0
        self.learned: dict[str, Any] | None = None

    def settle(self) -> None:
        """Check once more whether forks are safe, after all imports and a first fork."""
        if why := self._trouble():
            self._give_way(f"after importing {few(self._names)}, {why}")
        self._retreat.forget()

    def left(self) -> str:
        """Return a sentence about the imports that each worker must do itself, and why; "" if none was undone."""
        if self.learned is None:
            return ""
        steps = self._steps[self.learned["step"] :]
        after = [step[1] for step in steps if step[0] == "import" and step[1] not in sys.modules]
        return f"{self.learned['why']}: every worker imports {few(after)} on its own"

    def do(
        self,
        steps: list[Any],
        places: list[Any],
        first_path: str | None,
        main: str,
        before: fork_safety.ProcessSnapshot,
    ) -> list[str]:
        """Run the steps like the script. Watch for reads of variables that differ between workers. Return the imported
        modules.
        """
        self._steps, self._first, self._before = steps, first_path, before
        names = self._names
        environ = os.environ
        set_by_script: dict[str, str | None] = {}
        kind = type(environ)
        read: dict[str, str] = {}
        doing = [""]

        def own(name: str) -> bool:
            return name in self._per_worker or name.startswith(self._ours)

        def reads() -> str:
            name, module = next(iter(read.items()))
            return f"{module} reads {name} when it is imported, and that is another one in every worker"

        class Watched(kind):  # type: ignore[misc,valid-type]  # the type of os.environ has no public name
            def __getitem__(watched, name: str) -> str:  # noqa: N805 - `self` is the nursery
                if doing[0] and own(name):
                    read.setdefault(name, doing[0])
                    if self._retreat.is_open() and "torch" in sys.modules:
                        doing[0] = ""
                        # Undo the last import now, because the imports after it would be useless.
                        self._give_way(reads())
                return str(super().__getitem__(name))

        def spoiled(forked: bool) -> str:
            """Return why the imports make forks unsafe; "" if they do not. `forked`: a fork was just made, so threads
            that end at a fork have ended.
            """
            doing[0] = ""
            if what := was_set.by_imports():
                return f"what is imported sets {what}, which the script has set before that import"
            if read:
                return reads()
            if not forked:
                return ""
            file = main_module.pop("__file__")
            why = self._trouble(fork_safety.DEFAULTS | set_by_script.keys())
            main_module["__file__"] = file
            return f"after importing {few(names)}, {why}" if why else ""

        if first_path is not None:
            sys.path.insert(0, first_path)
        environ.__class__ = Watched
        told = Filters()
        was_set = fork_safety.ScriptSettings()
        given = [("import", name, ()) for name in self._preload]
        asked = [*((main, 1, "__main__", "") for _ in given), *places]
        # Set the main module's file, because libraries treat Python as interactive without it.
        main_module = vars(sys.modules["__main__"])
        main_module["__file__"] = main
        try:
            for at, (what, name, wanted) in enumerate([*given, *steps]):
                number, place = at - len(given), asked[at]
                if what == "import" and number >= 0 and self._may_bring_much(name):
                    lesson = self._keep_spare(number, spoiled)
                    if lesson is not None:
                        self.learned = lesson
                        was_set.forked()
                        self._torch_alone(lesson, place)
                        break
                doing[0] = name if what == "import" else ""
                if what == "warn":
                    told.do(name)
                    continue
                if what == "sets":
                    was_set.by_script(name)
                    continue
                if own(name) and what != "import":
                    continue
                if what == "set" or (what == "default" and name not in environ):
                    set_by_script.setdefault(name, environ.get(name))
                    environ[name] = wanted[0]
                elif what == "import":
                    names.append(name)
                    try:
                        self._import(name, tuple(wanted), place, asked=number < 0)
                    except Unfit as failed:
                        doing[0] = ""
                        if number < 0:
                            raise
                        self._give_way(str(failed))
            if why := spoiled(False):
                self._give_way(why)
        finally:
            environ.__class__ = kind
            del main_module["__file__"]
        told.take_back()
        for name, value in set_by_script.items():
            # Undo what the imports have set: the script will set the variable itself.
            environ.pop(name, None)
            if value is not None:
                environ[name] = value
        if first_path is not None and first_path in sys.path:
            sys.path.remove(first_path)
            sys.path_importer_cache.pop(first_path, None)
        return names

    def _may_bring_much(self, name: str) -> bool:
        """Return whether an import may be large: the module is not imported yet, and is not in the standard library."""
        top = name.partition(".")[0]
        # stdlib_module_names is missing in Python 3.9.
        return name not in sys.modules and top not in getattr(sys, "stdlib_module_names", ())

    def _keep_spare(self, number: int, spoiled: Callable[[bool], str]) -> dict[str, Any] | None:
        """Check the previous import and fork a backup process, before the import with this number. If that import is
        known to be unsafe, return the stored lesson about it.
        """
        known = self._lesson
        if known is not None and (known["step"], known["name"]) == (number, self._steps[number][1]):
            stamp = known["stamp"]
            if stamp is None or not fork_safety.changed([tuple(stamp)]):
                if why := spoiled(False):
                    self._give_way(why)
                if not (self._names or known["modules"]):
                    raise Unfit(known["why"], known)
                return known
        found = self._retreat.keep()
        if found is not None:
            return found
        if len(self._retreat.pids()) > 1:
            if why := spoiled(True):
                self._give_way(why)
            self._retreat.forget_first()
        self._doing, self._kept, self._known = number, len(self._names), frozenset(sys.modules)
        return None

    def _torch_alone(self, lesson: dict[str, Any], place: Any) -> None:
        """Import the modules of torch that the unsafe import would have loaded."""
        for name in lesson["modules"]:
            if name not in sys.modules:
                try:
                    self._import(name, (), place, asked=False)
                except Unfit:
                    return  # leave this import to the workers, because it depends on the unsafe one
                self._names.append(name)

    def _give_way(self, why: str) -> NoReturn:
        """Undo the last import: let the backup process take over. Raise `Unfit` if that is useless."""
        name = self._steps[self._doing][1] if self._steps else ""
        lesson = None
        if self._retreat.is_open():
            module = sys.modules.get(name.partition(".")[0])
            look = fork_safety.stamp(iter([str(getattr(module, "__file__", None) or "")]))
            modules = torch_part(self._known, self._before.environ, fork_safety.DEFAULTS)
            lesson = {"step": self._doing, "name": name, "why": why, "stamp": look[0] if look else None}
            lesson["modules"] = modules[:MOST_MODULES]
            if modules or self._kept:
                self._retreat.hand_over(lesson)
        raise Unfit(why, lesson)

    def _trouble(self, names: frozenset[str] = frozenset()) -> str:
        wanted = frozenset(name.partition(".")[0] for name in self._preload)
        own = fork_safety.NurseryParts(frozenset(self._retreat.fds()), self._retreat.pids(), names)
        return fork_safety.trouble(self._before, self._first or "", self._target(), wanted, own)

    def _import(self, name: str, wanted: tuple[str, ...], place: tuple[str, int, str, str], *, asked: bool) -> None:
        """Import a module as if from the script's line (`place`), because warning filters depend on the importing file
        and line. `wanted`: the imported names. `asked`: the user requested the import (`--preload`)."""
        file, line, module, caught = place
        code = compile("\n" * (line - 1) + "__import__(name, globals(), {}, wanted)", file, "exec")
        try:
            exec(code, {"__name__": module, "__file__": file, "name": name, "wanted": wanted})
        except (
            BaseException
        ) as error:  # an import may raise any exception, even SystemExit; the worker will raise it too
            if isinstance(error, {"Exception": Exception, "ImportError": ImportError}.get(caught, ())):
                return  # ignore the failure, because the script handles it
            said = "--preload " if asked else ""
            raise Unfit(f"importing {said}{name} failed: {type(error).__name__}: {error}") from None

    def _target(self) -> str:
        """Return the module that will run as `__main__`; for a package its `__main__` module; "" for a script."""
        if self._module is None:
            return ""
        found = sys.modules.get(self._module)
        return f"{self._module}.__main__" if hasattr(found, "__path__") else self._module


def few(names: list[str]) -> str:
    """Return the first four top-level packages of these modules as text, and how many more there are."""
    tops = list(dict.fromkeys(name.partition(".")[0] for name in names))
    return ", ".join(tops[:4]) + (f" and {len(tops) - 4} more" if len(tops) > 4 else "") or "nothing"
