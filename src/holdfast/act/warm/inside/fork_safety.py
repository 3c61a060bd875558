"""Checks whether a process may be forked after its imports. A fork must not lose, share or duplicate anything.

Python objects are not checked, because the same imports give a script the same objects. The checks cover the state of
the *process*: threads, descriptors, devices, children, signals, environment, working directory.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the part of `signal` in C: without `enum` and all that
import os
import sys

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = (
    "/dev/nvidia",
    "/dev/davinci",
    "/dev/hisi",
    "/dev/kfd",
    "/dev/dri/",
    "/dev/accel",
    "/dev/infiniband/",
    "/dev/neuron",
)
#: Environment variables that libraries set for child processes if they are unset, always to the same value:
#: torch._inductor the first (as of torch 2.13), scikit-learn the next two, DeepSpeed the last.
DEFAULTS = frozenset({
    "TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "PYTORCH_NVML_BASED_CUDA_CHECK",
})  # fmt: skip
#: Names of threads that a fork may lose. jemalloc's thread (in pyarrow) only returns memory in the background; without
#: it, jemalloc returns memory when the child frees some.
FORK_SAFE_THREADS = frozenset({"jemalloc_bg_thd"})
#: A new thread sets its name within this many seconds.
NAMED_S = 0.2
_HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")


class ProcessSnapshot:
    """The present state of this process, for a later comparison."""

    def __init__(self) -> None:
        self.fds = dict(_fds())
        self.environ = dict(os.environ)
        self.directory = _directory()
        self.handlers = {number: _signal.getsignal(number) for number in range(1, 65) if _catchable(number)}
        self.mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self.modules = frozenset(sys.modules)


class ScriptSettings:
    """Detects a setting that both the script and a later import make. With the imports before the script, the script's
    value would win, not the import's.
    """

    def __init__(self) -> None:
        self._then: dict[str, list[object]] = {}

    def by_script(self, what: str) -> None:
        """Record that the script sets the state of `what` (`logging` or `random`) at this point of its imports."""
        self._then.setdefault(what, _settings(what))

    def forked(self) -> None:
        """Read the settings again after a fork, because `random` reseeds itself in a fork."""
        self._then = {what: _settings(what) for what in self._then}

    def by_imports(self) -> str:
        """Return a phrase about a setting of the script that a later import has changed; "" if there is none."""
        for what, then in self._then.items():
            now = _settings(what)
            # None: the module was not imported then, so the script had set nothing in it.
            if any(one is not None and one != now[at] for at, one in enumerate(then)):
                return {"logging": "the handlers of logging", "random": "the state of a random generator"}[what]
        return ""


def _settings(what: str) -> list[object]:
    modules = sys.modules
    if what == "logging":
        root = getattr(modules.get("logging"), "root", None)
        return [None if root is None else (list(root.handlers), root.level)]
    random, numpy, torch = (modules.get(name) for name in ("random", "numpy.random", "torch"))
    state = getattr(numpy, "get_state", None)
    return [
        None if random is None else random.getstate(),
        None if state is None else repr(state()),
        None if torch is None else bytes(torch.get_rng_state().numpy()),
    ]


def take_defaults(before: ProcessSnapshot) -> dict[str, str]:
    """Return the variables to which libraries have given a default since `before`, and remove them from the
    environment.
    """
    new = [name for name in sorted(DEFAULTS) if name in os.environ and name not in before.environ]
    return {name: os.environ.pop(name) for name in new}


class NurseryParts:
    """The descriptors, child pids and variables that holdfast itself has created in this process. The checks ignore
    them.
    """

    def __init__(
        self, fds: frozenset[int] = frozenset(), pids: frozenset[int] = frozenset(), names: frozenset[str] = frozenset()
    ) -> None:
        """Store what holdfast itself made. `fds`: descriptors. `pids`: child processes. `names`: environment
        variables."""
        self.fds = fds
        self.pids = pids
        self.names = names


def trouble(before: ProcessSnapshot, local_path: str, target: str, wanted: frozenset[str], own: NurseryParts) -> str:
    """Return the first reason why this process must not be forked, or "" if there is none.

    `before`: the state before the imports. `local_path`: the script's directory; of its modules only those in `wanted`
    may be imported. `target`: the module that will run as `__main__`; it must not be imported yet. `own`: the parts
    that holdfast has created in this process.
    """
    return next(_troubles(before, local_path, target, wanted, own), "")


def _troubles(
    before: ProcessSnapshot, local_path: str, target: str, wanted: frozenset[str], own: NurseryParts
) -> Iterator[str]:
    yield from _devices()
    for fd, name in _fds():
        if before.fds.get(fd) != name and name not in _HARMLESS and fd not in own.fds:
            yield f"an open {'socket' if name.startswith('socket:') else 'file'} is left ({name})"
    yield from _threads()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                if children := [int(pid) for pid in file.read().split() if int(pid) not in own.pids]:
                    yield f"a process was started (pid {children[0]})"
        except OSError:
            pass  # ignore a file that this kernel lacks, or a thread that has just exited
    now = ProcessSnapshot()
    changed = sorted(
        name for name in before.environ.keys() | now.environ.keys() if before.environ.get(name) != now.environ.get(name)
    )
    if changed := [name for name in changed if name not in own.names]:
        yield f"the environment was changed ({', '.join(changed[:3])})"
    if now.directory != before.directory:
        yield "the working directory was changed"
    for number, handler in before.handlers.items():
        # Compare with `!=`, because for a handler written in C getsignal returns a new object at each call.
        if now.handlers[number] != handler:
            yield f"the handler of signal {number} was changed"
    if now.mask != before.mask:
        yield "the mask of blocked signals was changed"
    if now.umask != before.umask:
        yield "the umask was changed"
    if any(_signal.getitimer(which)[0] for which in (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)):
        yield "a timer is set"
    if sys.gettrace() is not None or sys.getprofile() is not None:
        yield "a tracer or profiler is on"
    yield from _modules(before, local_path, target, wanted)


def _devices() -> Iterator[str]:
    for module in ("torch.cuda", "torch.xpu", "torch_npu.npu"):
        if getattr(sys.modules.get(module), "_initialized", False) is True:
            yield f"an accelerator was touched ({module} is initialized)"
    if getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):
        yield "an accelerator was touched (jax has a backend)"
    for _, name in _fds():
        if name.startswith(DEVICES):
            yield f"an accelerator was touched ({name} is open)"
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if " /dev/" in line and line.split(maxsplit=5)[5].startswith(DEVICES):
                    yield f"an accelerator was touched ({line.split(maxsplit=5)[5].strip()} is mapped)"
    except OSError:
        pass  # skip this check, because the file is not readable; the descriptors were checked


def _threads() -> Iterator[str]:
    """Yield a reason if other threads run. Call this only after a first fork, because some libraries, such as OpenBLAS,
    end their threads at a fork.
    """
    names = _thread_names()
    if names and all(name == _name_of(os.getpid()) for name in names):
        # Wait until new threads have set their names, so that a harmless thread is recognised.
        _signal.sigtimedwait((), NAMED_S)
        names = _thread_names()
    if names:
        yield f"{len(names)} threads run ({', '.join(sorted(set(names))[:3])})"


def _thread_names() -> list[str]:
    others = [_name_of(int(task)) for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    return [name for name in others if name and name not in FORK_SAFE_THREADS]


def _name_of(task: int) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""  # the thread has just exited, so it has no name


def _modules(before: ProcessSnapshot, local_path: str, target: str, wanted: frozenset[str]) -> Iterator[str]:
    if target and target in sys.modules:
        yield f"the module {target} itself was imported by what it imports"
    prefix = local_path + os.sep
    for name, module in list(sys.modules.items()):
        if name in before.modules or name.partition(".")[0] in wanted:
            continue
        file = getattr(module, "__file__", None)
        if local_path and isinstance(file, str) and file.startswith(prefix) and not installed(file):
            yield f"{file} was imported by an installed package"


def installed(file: str) -> bool:
    """Return whether a file belongs to the standard library or to site-packages (dist-packages)."""
    parts = file.split(os.sep)
    standard = os.path.dirname(os.__file__) + os.sep
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(standard)


def _fds() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield int(name), os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # ignore the fd that listed the directory, because it is closed by now


def _directory() -> tuple[int, int]:
    stat = os.stat(".")
    return stat.st_dev, stat.st_ino


def _catchable(number: int) -> bool:
    return number in _signal.valid_signals() and number not in (_signal.SIGKILL, _signal.SIGSTOP)


# --------------------------------------------------------------------------- functions that notice changed source files

#: A file's path, modification time in ns, size and inode.
Stamp = tuple[str, int, int, int]


def stamp(paths: Iterator[str]) -> list[Stamp]:
    """Return the stamps (modification time, size, inode) of the files that exist."""
    return [(path, *found) for path in paths if (found := _look(path)) is not None]


def sources(own: list[str]) -> Iterator[str]:
    """Yield the files in `own` (the user's files that were read), and the files of all imported modules."""
    yield from own
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.isabs(file):
            yield file


def changed(stamps: list[Stamp]) -> str:
    """Return the first file that has changed since its stamp was taken, or "" if none has."""
    for path, *known in stamps:
        if _look(path) != tuple(known):
            return path
    return ""


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
