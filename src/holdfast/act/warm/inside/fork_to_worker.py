"""From a fork of the nursery to a process that the interpreter then makes the script of."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the part of `signal` in C: without `enum` and all that
import _socket
import marshal
import os
import struct
import sys

from . import random_seeds

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be one more module that the script finds imported
    from typing import Any

#: Holds the number of the control socket.
VARIABLE = "HOLDFAST_NURSERY"
#: What importing wrote to stdout and stderr: a worker that imports by itself would have written it too.
PRINTED: list[bytes] = [b"", b""]
#: Variables that a worker would get by doing the imports itself.
SET_BY_IMPORTS: dict[str, str] = {}
READY = b"+"
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_FDS = 5


def worker(control: Any, told: int, adopted: int, supervisor: int) -> None:
    """In the fork: be the supervisor's, wait to be claimed, get ready, wait for the go. Returns when it has come.

    The supervisor hears of it before it becomes its child (`told` is closed then): a child that it does not know it
    would take for one of the job's processes, and stop.
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
        # A fork does not inherit whom its parent lets read its stacks.
        prctl(_PR_SET_PTRACER, supervisor, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)
        data, ancillary, _, _ = ours.recvmsg(64, _socket.CMSG_SPACE(4 * (_FDS + 1)))
        if not data:
            os._exit(0)
        received = struct.unpack(f"{_FDS + 1}i", ancillary[0][2])
        ours.close()
    except BaseException:  # it is not claimed: it may just leave
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
    except BaseException as error:  # a bug of ours: no traceback of ours may pass for the script's
        os.write(status, f"{what}: {type(error).__name__}: {error} (status 127)".encode(errors="replace"))
        os._exit(127)


def _hear_again() -> None:
    """The nursery is deaf to signals for the workers. One that came before this fork was claimed is forgotten."""
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    for number in blocked:
        if (handler := _signal.getsignal(number)) is not None:
            _signal.signal(number, _signal.SIG_IGN)
            _signal.signal(number, handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def start_afresh() -> None:
    """What a process has one of, and two workers must not share."""
    modules = sys.modules
    random_seeds.sow()
    # `random` seeds itself after a fork. NumPy's global generator does not.
    if (numpy_random := modules.get("numpy.random")) is not None:
        numpy_random.seed()
    # Nor does torch's, which starts from the system's entropy; a small seed was set by hand, in every process alike.
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
    """`logging` counts from when it was imported."""
    if (logging := sys.modules.get("logging")) is not None:
        from time import time, time_ns

        names = vars(logging)
        names["_startTime"] = time_ns() if isinstance(names["_startTime"], int) else time()


def _streams_afresh() -> None:
    """The streams as the interpreter makes them: what they lead to is another one now, perhaps a terminal."""
    import io

    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # the interpreter's own, not replaced yet

    old = sys.stdin
    if old is None:
        return
    buffer = open(0, "rb", closefd=False)  # noqa: SIM115 - it stays open as long as the process
    vars(buffer.raw)["name"] = "<stdin>"
    unbuffered = getattr(old, "write_through", False)
    new = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", buffer.isatty(), unbuffered)
    vars(new)["mode"] = "r"
    sys.stdin = new
    sys.__stdin__ = new  # type: ignore[misc]  # the interpreter sets it once; this is that once


# ---------------------------------------------------------------------------------------------- calls without a name


def prctl(*words: int) -> int:
    import ctypes

    return int(ctypes.CDLL(None).prctl(*(ctypes.c_ulong(word) for word in words)))


def keep(*things: object) -> None:
    """Let these never be freed: in a fork that costs a page of memory of one's own for every few objects."""
    import ctypes

    hold = ctypes.PyDLL(None).Py_IncRef
    for thing in things:
        hold(ctypes.py_object(thing))


def thaw(*things: object) -> None:
    """Let these be collected again, after `gc.freeze` has taken all there is out of collections."""
    import ctypes

    python = ctypes.PyDLL(None)
    for thing in things:
        python.PyObject_GC_UnTrack(ctypes.py_object(thing))
        python.PyObject_GC_Track(ctypes.py_object(thing))
