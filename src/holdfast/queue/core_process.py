"""The core's processes. The keeper holds the lock and the socket, and starts the core again when a signal killed it.

The keeper runs no code of the queue and touches no file, so it has little to fail. If the keeper dies, the core becomes
the next keeper: it replaces its program by `holdfast core serve`, with the same process id, lock and socket.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import sys
import time
import traceback
from functools import partial

from holdfast.act.linux import name_process
from holdfast.clock import Clock
from holdfast.decide.queue.queue_model import Policy
from holdfast.file_modes import keep_private
from holdfast.queue.core_place import PRETEND, CorePlace
from holdfast.queue.core_records import CoreRecords
from holdfast.queue.core_socket import CoreSocket
from holdfast.queue.machine_parts import machine_here
from holdfast.queue.queue_core import QueueCore
from holdfast.reactor import Reactor, pause

#: Exit status of a core that has ended because it had nothing to do, or because a user has ended it.
DONE = 0
#: How often the core checks that its directory still exists, in seconds.
LOOK_S = 5.0
#: A core that lived shorter than this may have been unable to start, in seconds. After `FREE_STARTS` of them in a row
#: the keeper waits as long before each start.
SHORT_LIFE_S = 1.0
FREE_STARTS = 5


def serve(place: CorePlace, lock: int | None, listener: socket.socket | None, ready: int | None = None) -> int:
    """Run a core until it has nothing to do, as the keeper. Return the exit status.

    `lock`, `listener`: inherited from the keeper before; None: take them. If another core runs, return at once.
    `ready`: a descriptor that is closed once the socket listens, for the command that started the core.
    """
    keep_private()
    place.make()
    if lock is None and (lock := place.lock()) is None:
        return DONE
    if listener is None:
        listener = place.listen()
    if ready is not None:
        os.close(ready)
    short_lives, clock = 0, Clock()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
    while True:
        alive, keeper = os.pipe()
        began = clock.now()
        pid = os.fork()
        if pid == 0:
            os.close(keeper)
            status = 1
            try:
                name_process("holdfast-core")
                status = _core(place, lock, listener, alive)
            except BaseException:  # a bug of the core must not run the keeper's code below
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(alive)
        status = _wait(pid)
        os.close(keeper)
        if status >= 0:
            return status
        _log(f"the core (pid {pid}) was ended by {signal.Signals(-status).name}")
        short_lives = short_lives + 1 if clock.now() - began < SHORT_LIFE_S else 0
        if short_lives >= FREE_STARTS:
            pause(SHORT_LIFE_S)


def _wait(core: int) -> int:
    """Wait for the core's end, and pass SIGTERM on to it. Return its status, or the negative number of the signal."""
    while True:
        received = signal.sigwaitinfo({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
        if received.si_signo != signal.SIGCHLD:
            os.kill(core, signal.SIGTERM)
        while True:
            try:
                # After an exec of a core, this process also has the jobs that the core had started.
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return DONE
            if not pid:
                break
            if pid == core:
                return os.waitstatus_to_exitcode(status)


def _core(place: CorePlace, lock: int, listener: socket.socket, alive: int) -> int:
    """Run the core itself. `alive`: becomes readable when the keeper dies."""
    clock = Clock()
    reactor = Reactor(clock.now)
    signals = _signals()
    # Files of this directory are the devices; only the environment of the core that starts first counts.
    machine = partial(machine_here, os.environ.get(PRETEND, ""))
    core = QueueCore(place, CoreRecords(place.records), reactor, machine, Policy(), _user(), _log)
    server = CoreSocket(listener, reactor, core.take)
    over = False

    def end(fd: int, now: float) -> None:
        nonlocal over
        over = True

    def keep(fd: int, now: float) -> None:
        core.close()
        server.close()
        _become_keeper(place, lock, listener)

    reactor.watch(signals, end)
    reactor.watch(alive, keep)
    core.adopt()
    _log(f"the core (pid {os.getpid()}) runs")
    while not over and not core.over:
        idle_until = core.idle_until(server.connected)
        now = reactor.now()
        if idle_until is not None and now >= idle_until:
            break
        longest_s = LOOK_S if idle_until is None else min(LOOK_S, idle_until - now)
        reactor.wait(longest_s=longest_s)
        if not place.directory.is_dir():
            break
    server.close()
    core.close()
    _log(f"the core (pid {os.getpid()}) ends")
    return DONE


def _become_keeper(place: CorePlace, lock: int, listener: socket.socket) -> None:
    for fd in (lock, listener.fileno()):
        os.set_inheritable(fd, True)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    words = ["core", "serve", "--lock-fd", str(lock), "--socket-fd", str(listener.fileno())]
    os.environ["HOLDFAST_HOME"] = str(place.home)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "holdfast", *words])


def _signals() -> int:
    """Return a descriptor that is readable after SIGTERM, SIGINT or SIGHUP."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reader


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # the user database has no name for this user


def _log(text: str) -> None:
    """Write a line to the core's log, which is this process's standard error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    os.write(2, f"{stamp} {text}\n".encode())
