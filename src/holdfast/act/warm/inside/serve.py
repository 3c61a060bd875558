"""The nursery's life: import, look at itself, and fork workers until the supervisor goes away.

One datagram socket leads to the supervisor. Messages are marshalled tuples, since both ends are the same interpreter
and `marshal` is loaded anyway. In: (`fork`, how many), (`check`,). Out: (`no`, why), (`ready`, modules, seconds),
(`born`, pid) with a pidfd and the worker's own socket, (`failed`, why), (`fresh`, first changed file or ``).
"""

from __future__ import annotations

import _socket
import gc
import marshal
import os
import sys
import time

from . import become, check, seeds

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be one more module that the script finds imported
    from typing import Any

RECEIVE = 1 << 20
MOST_PRINTED = 1 << 16


class Unfit(Exception):
    """Why workers cannot be forked from here."""


def serve() -> bool:
    """Returns in a worker only: whether a `sitecustomize` of the user's own was imported."""
    word = os.environ.pop(become.VARIABLE).split()
    control = _socket.socket(fileno=int(word[0]))
    os.set_inheritable(control.fileno(), False)
    config: dict[str, Any] = marshal.loads(control.recv(RECEIVE))
    if config["pythonpath"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = config["pythonpath"]
    printed = (os.memfd_create("stdout"), os.memfd_create("stderr"))
    for target, fd in zip((1, 2), printed, strict=True):
        os.dup2(fd, target)
    nursery = _Nursery(control, config)
    try:
        own_one = nursery.get_ready()
    except Unfit as error:
        control.send(marshal.dumps(("no", str(error))))
        os._exit(0)
    except Exception as error:  # a bug of ours: workers start cold, and somebody reads why
        control.send(marshal.dumps(("no", f"a bug of holdfast: {type(error).__name__}: {error}")))
        os._exit(0)
    become.PRINTED[:] = [_content(fd) for fd in printed]
    for fd in printed:
        os.close(fd)
    nursery.wait()
    become.keep(nursery, sys.modules[__name__], become, check, seeds)
    return own_one


def _content(fd: int) -> bytes:
    return os.pread(fd, MOST_PRINTED, 0)


class _Nursery:
    def __init__(self, control: Any, config: dict[str, Any]) -> None:
        self._control = control
        self._supervisor: int = config["supervisor"]
        self._script: str | None = config["script"]
        self._module: str | None = config["module"]
        self._preload: list[str] = config["preload"]
        self._per_worker: frozenset[str] = frozenset(config["per_worker"])
        self._ours: str = config["ours"]
        self._stamps: list[check.Stamp] = []

    # ------------------------------------------------------------------------------------------ getting ready

    def get_ready(self) -> bool:
        own_one = _users_own("sitecustomize")
        if sys.gettrace() is not None or sys.getprofile() is not None:
            raise Unfit("a tracer or profiler is on from the start")
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        if any(finder.find_spec("usercustomize", None) for finder in finders):
            raise Unfit("there is a usercustomize, which would run after the imports instead of before")
        began = time.perf_counter()
        first_path = self._first_path()
        steps, places, files, main, left = self._find(first_path)
        before = check.Snapshot()
        with seeds.Watch():
            names = self._import_all(steps, places, first_path, main)
        become.SET_BY_IMPORTS.update(check.take_defaults(before))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        import ctypes  # noqa: F401 - every worker needs it, and would load it by itself

        gc.collect()
        gc.freeze()
        # At its end the interpreter collects what the script's names hold, if it may: only then runs a `__del__` there,
        # or a `finally` of a generator. To collect all imports as well would cost each worker tenths of a second then.
        main_module = sys.modules["__main__"]
        become.thaw(main_module, vars(main_module))
        self._first_fork()
        wanted = frozenset(name.partition(".")[0] for name in self._preload)
        if why := check.trouble(before, first_path or "", self._target(), wanted):
            raise Unfit(f"after importing {_few(names)}, {why}")
        self._stamps = check.stamp(check.sources(files))
        seconds = time.perf_counter() - began
        imported = len(sys.modules) - len(before.modules)
        self._control.send(marshal.dumps(("ready", len(names), imported, seconds, left)))
        return own_one

    def _first_path(self) -> str | None:
        """What the interpreter will put in front of `sys.path`."""
        if getattr(sys.flags, "safe_path", False):  # from 3.11 on
            return None
        if self._module is not None:
            return os.getcwd()
        assert self._script is not None
        place = os.path.realpath(self._script)
        return place if os.path.isdir(place) else os.path.dirname(place)

    def _target(self) -> str:
        """The module that will run as the main one: of a package its `__main__`."""
        if self._module is None:
            return ""
        found = sys.modules.get(self._module)
        return f"{self._module}.__main__" if hasattr(found, "__path__") else self._module

    def _find(self, first_path: str | None) -> tuple[list[Any], list[Any], list[str], str, str]:
        """Ask a fork: what reading a script imports (`ast` and more) would be found imported by the workers."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                from .find import Finder

                finder = Finder(first_path)
                if self._module is not None:
                    finder.module(self._module)
                elif os.path.isdir(str(self._script)):
                    finder.script(os.path.join(str(self._script), "__main__.py"))
                else:
                    finder.script(str(self._script))
                with open(writer, "wb") as file:
                    left = f"{finder.note}: every worker imports {_few(finder.left)} on its own" if finder.left else ""
                    file.write(marshal.dumps((finder.steps, finder.places, finder.files, finder.main, left)))
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader, "rb") as file:
            data = file.read()
        os.waitpid(pid, 0)
        if not data:
            raise Unfit("the script's imports could not be found")
        steps, places, files, main, left = marshal.loads(data)
        return steps, places, files, main, left

    def _import_all(self, steps: list[Any], places: list[Any], first_path: str | None, main: str) -> list[str]:
        """Do the steps as the script would, under a watch for what only a worker knows; what was imported."""
        environ = os.environ
        set_by_script: dict[str, str | None] = {}
        kind = type(environ)
        read: dict[str, str] = {}
        doing = [""]

        def own(name: str) -> bool:
            return name in self._per_worker or name.startswith(self._ours)

        class Watched(kind):  # type: ignore[misc,valid-type]  # the type of os.environ has no public name
            def __getitem__(self, name: str) -> str:
                if doing[0] and own(name):
                    read.setdefault(name, doing[0])
                return str(super().__getitem__(name))

        if first_path is not None:
            sys.path.insert(0, first_path)
        environ.__class__ = Watched
        names: list[str] = []
        told = _Filters()
        was_set = check.Settings()
        given = [("import", name, ()) for name in self._preload]
        asked = [(main, 1, "__main__", "") for _ in given]
        # Libraries that want to know whether somebody types look whether the main module has a file.
        main_module = vars(sys.modules["__main__"])
        main_module["__file__"] = main
        try:
            for number, ((what, name, wanted), place) in enumerate(
                zip([*given, *steps], [*asked, *places], strict=True)
            ):
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
                    self._import(name, tuple(wanted), place, asked=number < len(given))
        finally:
            environ.__class__ = kind
            del main_module["__file__"]
        told.take_back()
        if what := was_set.by_imports():
            raise Unfit(f"what is imported sets {what}, which the script has set before that import")
        if read:
            name, module = next(iter(read.items()))
            raise Unfit(f"{module} reads {name} when it is imported, and that is another one in every worker")
        for name, value in set_by_script.items():
            # The script will set it itself.
            environ.pop(name, None)
            if value is not None:
                environ[name] = value
        if first_path is not None and first_path in sys.path:
            sys.path.remove(first_path)
            sys.path_importer_cache.pop(first_path, None)
        return names

    def _import(self, name: str, wanted: tuple[str, ...], place: tuple[str, int, str, str], *, asked: bool) -> None:
        """Import as if from its place: a warning that the import gives is told, or not, by where that is."""
        file, line, module, caught = place
        code = compile("\n" * (line - 1) + "__import__(name, globals(), {}, wanted)", file, "exec")
        try:
            exec(code, {"__name__": module, "__file__": file, "name": name, "wanted": wanted})
        except (
            BaseException
        ) as error:  # an import may raise anything, SystemExit included: the worker will meet it itself
            if isinstance(error, {"Exception": Exception, "ImportError": ImportError}.get(caught, ())):
                return  # the script has another way, and will take it
            said = "--preload " if asked else ""
            raise Unfit(f"importing {said}{name} failed: {type(error).__name__}: {error}") from None

    def _first_fork(self) -> None:
        """Libraries that know about forks end their threads for it: only what is left after one is of interest."""
        if sys.version_info >= (3, 12):
            # Python warns of a fork among threads; whether there are any that matter is about to be seen.
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        else:
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                become.start_afresh()
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(pid, 0)[1]:
            raise Unfit("a fork cannot be given random state of its own")

    # ------------------------------------------------------------------------------------------ serving

    def wait(self) -> None:
        """Serve. Returns in a worker that has been told to go."""
        while True:
            data = self._control.recv(RECEIVE)
            if not data:
                os._exit(0)
            match marshal.loads(data):
                case ("fork", count):
                    if self._fork(count):
                        return
                case ("check",):
                    self._check()

    def _check(self) -> None:
        self._control.send(marshal.dumps(("fresh", check.changed(self._stamps))))

    def _peek(self) -> None:
        """Look at the files now, if that is what is asked next: forks take their time meanwhile."""
        try:
            data = self._control.recv(RECEIVE, _socket.MSG_DONTWAIT | _socket.MSG_PEEK)
        except BlockingIOError:
            return
        if data and marshal.loads(data) == ("check",):
            self._control.recv(RECEIVE)
            self._check()

    def _fork(self, count: int) -> bool:
        """Fork workers through a process between, which ends: then the supervisor is their parent. True in a worker."""
        adopted, held = os.pipe()
        try:
            between = os.fork()
        except OSError as error:
            os.close(adopted)
            os.close(held)
            self._control.send(marshal.dumps(("failed", count, f"no process could be forked: {error.strerror}")))
            return False
        if between:
            os.close(adopted)
            self._peek()
            os.waitpid(between, 0)
            # The kernel has given its children to the supervisor by now; the end of this pipe tells them.
            os.close(held)
            return False
        telling, told = os.pipe()
        forked = 0
        for left in range(count, 0, -1):
            try:
                pid = os.fork()
            except OSError as error:
                self._control.send(marshal.dumps(("failed", left, f"no process could be forked: {error.strerror}")))
                break
            if pid == 0:
                os.close(held)
                os.close(telling)
                become.worker(self._control, told, adopted, self._supervisor)
                return True
            forked += 1
        os.close(told)
        missing = forked
        while said := os.read(telling, count):
            missing -= len(said)
        if missing:
            self._control.send(marshal.dumps(("failed", missing, "a fork died before it was told of")))
        os._exit(0)


class _Filters:
    """Filters of warnings that the script sets between its imports: in force for those behind them, and taken back."""

    def __init__(self) -> None:
        self._module: Any = None
        self._before: list[Any] = []
        """All that there were before the first of the script's."""
        self._of_script: list[Any] = []

    def do(self, call: str) -> None:
        import warnings

        if self._module is None:
            self._module, self._before = warnings, list(warnings.filters)
        had = list(warnings.filters)
        eval(call, {"warnings": warnings})
        self._of_script += [each for each in warnings.filters if each not in had]

    def take_back(self) -> None:
        """Until the script itself sets them, only those of the imports are there, before those that were."""
        if self._module is None:
            return
        now = list(self._module.filters)
        of_imports = [each for each in now if each not in self._before and each not in self._of_script]
        self._module.filters[:] = [*of_imports, *(each for each in self._before if each in now)]
        mutated = getattr(self._module, "_filters_mutated", None)
        if mutated is not None:
            mutated()


def _users_own(name: str) -> bool:
    try:
        __import__(name)
    except ImportError as error:
        if error.name == name:
            return False
        raise Unfit(f"importing {name} failed: {error}") from None
    except Exception as error:  # as for the above: a cold start will print what Python prints
        raise Unfit(f"importing {name} failed: {error}") from None
    return True


def _few(names: list[str]) -> str:
    tops = list(dict.fromkeys(name.partition(".")[0] for name in names))
    return ", ".join(tops[:4]) + (f" and {len(tops) - 4} more" if len(tops) > 4 else "") or "nothing"
