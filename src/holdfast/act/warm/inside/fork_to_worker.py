"""Turns a fork of the prewarmed process into a worker, in which the interpreter then runs the script."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the part of `signal` in C: without `enum` and all that
import _socket
import marshal
import os
import struct
import sys

from . import random_seeds

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from typing import Any

#: The variable with the fd number of the control socket.
VARIABLE = "HOLDFAST_NURSERY"
#: The bytes that the imports wrote to stdout and stderr. Each worker writes them again, as if it had done the imports.
PRINTED: list[bytes] = [b"", b""]
#: The environment variables that the imports set. Each worker gets them too.
SET_BY_IMPORTS: dict[str, str] = {}
READY = b"+"
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_FDS = 5


def worker(control: Any, told: int, adopted: int, supervisor: int) -> None:
    """Turn the fork into a worker. Become the supervisor's child, wait for a worker's data, prepare, and return when
    the supervisor lets the worker run.

    `told`: the pipe that the fork closes after it has reported itself to the supervisor. It must do that before the
    supervisor adopts it, because the supervisor would stop an unknown child. `adopted`: the pipe whose end of file
    means that the supervisor is now the parent.
    """
    try:
        start_afresh()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        pidfd = os.pidfd_open(os.getpid())
        fds = struct.pack("2i", pidfd, theirs.fileno())
        control.sendmsg([marshal.dumps(("born", os.getpid()))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
        os.close(pidfd)
        theirs.close()
        control.close()
        os.write(told, b".")
        os.close(told)
        os.read(adopted, 1)
        os.close(adopted)
        os.setsid()
        prctl(_PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
        # Allow the supervisor to trace this process, because a fork loses that permission.
        prctl(_PR_SET_PTRACER, supervisor, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)
        data, ancillary, _, _ = ours.recvmsg(64, _socket.CMSG_SPACE(4 * (_FDS + 1)))
        if not data:
            os._exit(0)
        received = struct.unpack(f"{_FDS + 1}i", ancillary[0][2])
        ours.close()
    except BaseException:  # exit, because no worker is assigned to this fork yet
        os._exit(1)
    _claimed(*received)


def _claimed(order: int, stdin: int, stdout: int, stderr: int, go: int, status: int) -> None:
    what = "prepare"
    try:
        with open(order, "rb") as file:
            file.seek(0)
            claim: dict[str, Any] = marshal.loads(file.read())
        for group in claim["groups"]:
            with open(group, "w", encoding="ascii") as joined:
                joined.write("0")
        if claim["cpus"]:
            what = f"bind to the CPUs {claim['cpus']}"
            os.sched_setaffinity(0, claim["cpus"])
            what = "prepare"
        for target, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, target)
            os.close(fd)
        environ = os.environ
        environ.clear()
        environ.update(claim["env"])
        environ.update(SET_BY_IMPORTS)
        _streams_afresh()
        _clocks_afresh()
        what = f"working directory {claim['cwd']}"
        os.chdir(claim["cwd"])
        _hear_again()
        os.write(status, READY)
        if not os.read(go, 1):
            os._exit(0)
        for at, text in enumerate(PRINTED):
            if text:
                os.write(at + 1, text)
        PRINTED[:] = [b"", b""]
        os.close(go)
        os.close(status)
    except OSError as error:
        os.write(status, f"{what}: {error.strerror} (status 127)".encode(errors="replace"))
        os._exit(127)
    except BaseException as error:  # a bug of holdfast: its traceback must not look like one of the script
        os.write(status, f"{what}: {type(error).__name__}: {error} (status 127)".encode(errors="replace"))
        os._exit(127)


def _hear_again() -> None:
    """Unblock the signals that the prewarmed process has blocked. Drop pending signals, because they were sent before
    this fork became a worker.
    """
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    for number in blocked:
        if (handler := _signal.getsignal(number)) is not None:
            _signal.signal(number, _signal.SIG_IGN)
            _signal.signal(number, handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def start_afresh() -> None:
    """Renew the state that must differ in each process: random generators, keys and thread ids."""
    modules = sys.modules
    random_seeds.sow()
    # `random` seeds itself after a fork, but NumPy's global generator does not.
    if (numpy_random := modules.get("numpy.random")) is not None:
        numpy_random.seed()
    # torch's generator does not reseed itself either. A large seed comes from the system, and is replaced. A small seed
    # was set by the user for all processes, and stays.
    generator = getattr(modules.get("torch"), "default_generator", None)
    if generator is not None and generator.initial_seed() >= 1 << 32:
        generator.seed()
    if (process := modules.get("multiprocessing.process")) is not None:
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    if (uuid := modules.get("uuid")) is not None:
        vars(uuid)["_last_timestamp"] = None
    if (threading := modules.get("threading")) is not None:
        main = threading.main_thread()
        if hasattr(main, "_set_native_id"):
            main._set_native_id()


def _clocks_afresh() -> None:
    """Reset the start time of `logging`, which was set at the import of `logging`."""
    if (logging := sys.modules.get("logging")) is not None:
        from time import time, time_ns

        names = vars(logging)
        names["_startTime"] = time_ns() if isinstance(names["_startTime"], int) else time()


def _streams_afresh() -> None:
    """Set up stdout and stdin like the interpreter at its start, because their fds have changed and may be a terminal
    now.
    """
    import io

    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # still the interpreter's object

    old = sys.stdin
    if old is None:
        return
    buffer = open(0, "rb", closefd=False)  # noqa: SIM115 - it stays open until the process ends
    vars(buffer.raw)["name"] = "<stdin>"
    unbuffered = getattr(old, "write_through", False)
    new = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", buffer.isatty(), unbuffered)
    vars(new)["mode"] = "r"
    sys.stdin = new
    sys.__stdin__ = new  # type: ignore[misc] # the interpreter sets it at its start, as this does


# --------------------------------------------------------------------------------- functions that call C through ctypes


def prctl(*words: int) -> int:
    import ctypes

    return int(ctypes.CDLL(None).prctl(*(ctypes.c_ulong(word) for word in words)))


def keep(*things: object) -> None:
    """Keep these objects alive for ever. To free them in a fork would copy shared pages of memory."""
    import ctypes

    hold = ctypes.PyDLL(None).Py_IncRef
    for thing in things:
        hold(ctypes.py_object(thing))


def thaw(*things: object) -> None:
    """Let the collector see these objects again after `gc.freeze`, which hides all existing objects from it."""
    import ctypes

    python = ctypes.PyDLL(None)
    for thing in things:
        python.PyObject_GC_UnTrack(ctypes.py_object(thing))
        python.PyObject_GC_Track(ctypes.py_object(thing))
