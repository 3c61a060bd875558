"""The main loop of the prewarmed process (nursery): do the imports, check that forking is safe, and fork workers until
the supervisor exits.

One SOCK_SEQPACKET socket connects the prewarmed process to the supervisor. Messages are marshalled tuples, since
`marshal` is always loaded. Received: (`fork`, count), (`check`,). Sent: (`no`, reason, lesson), (`ready`, modules,
imported, seconds, imports left to workers, lesson), (`moved`, pid) with the pidfd, (`born`, pid) with a pidfd and the
worker's own socket, (`failed`, count, reason), (`fresh`, first changed file or empty). A *lesson* is an unsafe import,
which a later prewarmed process of this script leaves out from the start.
"""

from __future__ import annotations

import _socket
import gc
import marshal
import os
import sys
import time

from . import fork_retreat, fork_safety, fork_to_worker, random_seeds, script_imports, warning_filters
from .fork_retreat import fork
from .script_imports import Imports, Unfit, few

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from typing import Any

RECEIVE = 1 << 20
MOST_PRINTED = 1 << 16
HINT = "; move what can be moved above that line, or name it with --preload"


def serve() -> bool:
    """Run the prewarmed process. Return only in a forked worker. The result is True if the user's own `sitecustomize`
    was imported."""
    control = _socket.socket(fileno=int(os.environ.pop(fork_to_worker.VARIABLE)))
    os.environ.pop("HOLDFAST_JOB", None)  # imports see the same value as in every worker; /proc still shows the job
    os.set_inheritable(control.fileno(), False)
    config: dict[str, Any] = marshal.loads(control.recv(RECEIVE))
    if config["pythonpath"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = config["pythonpath"]
    printed = (os.memfd_create("stdout"), os.memfd_create("stderr"))
    for at, fd in enumerate(printed):
        os.dup2(fd, at + 1)
    nursery = _Nursery(control, config, printed)
    try:
        own_one = nursery.get_ready()
    except Unfit as error:
        control.send(marshal.dumps(("no", str(error), error.lesson)))
        os._exit(0)
    except Exception as error:  # catch bugs of holdfast too: workers then start cold, and the supervisor prints why
        control.send(marshal.dumps(("no", f"a bug of holdfast: {type(error).__name__}: {error}", None)))
        os._exit(0)
    fork_to_worker.PRINTED[:] = [_content(fd) for fd in printed]
    for fd in printed:
        os.close(fd)
    nursery.wait()
    fork_to_worker.keep(
        nursery,
        sys.modules[__name__],
        fork_to_worker,
        fork_safety,
        warning_filters,
        script_imports,
        fork_retreat,
        random_seeds,
    )
    return own_one


def _content(fd: int) -> bytes:
    return os.pread(fd, MOST_PRINTED, 0)


class _Nursery:
    def __init__(self, control: Any, config: dict[str, Any], printed: tuple[int, int]) -> None:
        self._control = control
        self._supervisor: int = config["supervisor"]
        self._script: str | None = config["script"]
        self._module: str | None = config["module"]
        self._stamps: list[fork_safety.Stamp] = []
        self._imports = Imports(control, config, printed)

    # ---------------------------------------------------------------- methods that import modules before the first fork

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
        try:
            import ctypes  # noqa: F401 - every worker needs it, so import it before the fork
        except ImportError as error:
            raise Unfit(f"{sys.executable} is a Python without {error.name}") from None

        before = fork_safety.ProcessSnapshot()
        with random_seeds.SeedWatch():
            names = self._imports.do(steps, places, first_path, main, before)
        fork_to_worker.SET_BY_IMPORTS.update(fork_safety.take_defaults(before))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        gc.collect()
        gc.freeze()
        # All imported modules are frozen: the interpreter does not collect them at its shutdown, which would cost each
        # worker tenths of a second. `__main__` is thawed again, because collecting the script's objects runs their
        # `__del__` and the `finally` of generators.
        main_module = sys.modules["__main__"]
        fork_to_worker.thaw(main_module, vars(main_module))
        self._first_fork()
        self._imports.settle()
        self._stamps = fork_safety.stamp(fork_safety.sources(files))
        seconds = time.perf_counter() - began
        imported = len(sys.modules) - len(before.modules)
        left = self._imports.left() or left
        self._control.send(marshal.dumps(("ready", len(names), imported, seconds, left, self._imports.learned)))
        return own_one

    def _first_path(self) -> str | None:
        """Return the entry that the interpreter will put first in `sys.path`; None with `-P`."""
        if getattr(sys.flags, "safe_path", False):  # only Python 3.11 and later have this flag
            return None
        if self._module is not None:
            return os.getcwd()
        assert self._script is not None
        place = os.path.realpath(self._script)
        return place if os.path.isdir(place) else os.path.dirname(place)

    def _find(self, first_path: str | None) -> tuple[list[Any], list[Any], list[str], str, str]:
        """Scan the script in a fork, because workers must not find the scan's modules (such as `ast`) imported."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                from .import_scan import Finder

                finder = Finder(first_path)
                if self._module is not None:
                    finder.module(self._module)
                elif os.path.isdir(str(self._script)):
                    finder.script(os.path.join(str(self._script), "__main__.py"))
                else:
                    finder.script(str(self._script))
                with open(writer, "wb") as file:
                    left = (
                        f"{finder.note}: every worker imports {few(finder.left)} on its own{HINT}"
                        if finder.left
                        else ""
                    )
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

    def _first_fork(self) -> None:
        """Fork once as a trial before the threads are checked. Some libraries end their threads at a fork, so only
        threads of other libraries remain.
        """
        pid = fork()
        if pid == 0:
            status = 1
            try:
                fork_to_worker.start_afresh()
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(pid, 0)[1]:
            raise Unfit("a fork cannot be given random state of its own")

    # ---------------------------------------------------------------------------- methods that serve requests for forks

    def wait(self) -> None:
        """Serve requests. Return only in a worker, once the worker may run."""
        while True:
            data = self._control.recv(RECEIVE)
            if not data:
                os._exit(0)
            asked = marshal.loads(data)
            if asked == ("check",):
                self._check()
            elif asked[0] == "fork" and self._fork(asked[1]):
                return

    def _check(self) -> None:
        self._control.send(marshal.dumps(("fresh", fork_safety.changed(self._stamps))))

    def _peek(self) -> None:
        """Handle a `check` request now, before the forks, if it is the next request."""
        try:
            data = self._control.recv(RECEIVE, _socket.MSG_DONTWAIT | _socket.MSG_PEEK)
        except BlockingIOError:
            return
        if data and marshal.loads(data) == ("check",):
            self._control.recv(RECEIVE)
            self._check()

    def _fork(self, count: int) -> bool:
        """Fork workers from an intermediate process, which exits, so that the supervisor adopts the workers. Return
        True in a worker.
        """
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
            # Close this pipe to tell the workers that the supervisor has adopted them.
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
                fork_to_worker.worker(self._control, told, adopted, self._supervisor)
                return True
            forked += 1
        os.close(told)
        missing = forked
        while said := os.read(telling, count):
            missing -= len(said)
        if missing:
            self._control.send(marshal.dumps(("failed", missing, "a fork died before it was told of")))
        os._exit(0)


def _users_own(name: str) -> bool:
    try:
        __import__(name)
    except ImportError as error:
        if error.name == name:
            return False
        raise Unfit(f"importing {name} failed: {error}") from None
    except Exception as error:  # report the failure: the workers then start cold and print the same error
        raise Unfit(f"importing {name} failed: {error}") from None
    return True
