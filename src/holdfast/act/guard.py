"""The guard process makes sure that no process of a job outlives its supervisor, however the supervisor dies.

`holdfast run` is two processes. The user starts the *guard*, which forks the *supervisor* and waits. The supervisor
forks the workers. Both are subreapers, so each can end all processes if the other is killed:

- the supervisor dies (SIGKILL, a crash): every process below it, in any session, becomes the guard's child; the guard
  kills them all, and exits with 128 + the signal's number;
- the guard dies: the supervisor reads the end of file of a pipe that only the guard held open, kills everything, and
  writes the report itself.

A stopped supervisor cannot read the pipe, so the guard's death also continues it (PDEATHSIG SIGCONT). Workers have a
PDEATHSIG as well, so that they end even if both processes are killed at the same instant. A signal from a user or a
scheduler to `holdfast run` reaches the guard, which forwards it to the supervisor through the pipe. The supervisor has
its own session, so a signal reaches it directly only if it was sent to its pid.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from holdfast.act import standard_streams
from holdfast.act.linux import become_subreaper, children, descendants, die_with_parent, in_background

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Bytes per signal in the guard's pipe: the signal's number, and whether it came from a key of the terminal.
WORD = 2
SI_KERNEL = 0x80


class HandBack(BaseException):
    """Raised by a supervisor that has started nothing, in a multi-node job. The guard process then runs the job
    itself.
    """


def guarded(
    supervise: Callable[[int], int],
    on_loss: Callable[[int, int], int | None],
    go_on: Callable[[], int] | None = None,
) -> int:
    """Fork, run `supervise(fd)` in the child, and guard the child in this process. Return the job's exit status.

    `on_loss(pid, signal)`: called if the supervisor was killed, after every process of the job has ended; it returns
    the exit status, or None for 128 + signal. The supervisor reads from `fd` the guard's signals, `WORD` bytes each,
    and the end of file when the guard dies. Call this before large imports, because the guard keeps this process's
    memory. `go_on()` returns the exit status if the supervisor raised `HandBack`.
    """
    reader, writer = os.pipe()
    handed_back = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    become_subreaper()
    # nohup makes holdfast ignore SIGHUP. (A shell also makes background jobs ignore SIGINT, but a SIGINT to this pid is
    # meant for holdfast.)
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    passed_on = [number for number in (*PASSED_ON, signal.SIGWINCH) if not (nohup and number == signal.SIGHUP)]
    waited_for = {*passed_on, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    before = standard_streams.modes(0)
    guard = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(writer)
        status = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.setsid()
            die_with_parent(guard, signal.SIGCONT)
            become_subreaper()
            status = supervise(reader)
        except HandBack:
            os.eventfd_write(handed_back, 1)
        except BaseException:  # catch bugs of holdfast too: this child must never run the guard's code below
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(reader)
    os.set_blocking(writer, False)
    heard: set[int] = set()
    code = _wait(supervisor, waited_for, writer, heard)
    if go_on is not None and _was_told(handed_back):
        os.close(writer)
        # The supervisor has left without an answer to these signals. SIGTERM stays blocked, so that the next guard
        # answers it with a report; the default action would end this process without one.
        for number in heard:
            os.kill(guard, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited_for - {signal.SIGTERM})
        return go_on()
    if before is not None and not in_background(os.getpid()):
        # A worker that was killed while it read a line may have left the terminal's echo off.
        standard_streams.restore(0, before)
    if code >= 0:
        return code
    killed = end_all()
    name = signal.Signals(-code).name
    text = f"holdfast: the supervisor (pid {supervisor}) was ended by {name}; "
    text += f"its {killed} remaining processes were killed.\n  try: holdfast jobs\n"
    os.write(2, text.encode())
    final = on_loss(supervisor, -code)
    return 128 - code if final is None else final


def _was_told(eventfd: int) -> bool:
    try:
        return os.eventfd_read(eventfd) > 0
    except BlockingIOError:
        return False
    finally:
        os.close(eventfd)


def _wait(supervisor: int, waited_for: set[signal.Signals], writer: int, heard: set[int]) -> int:
    """Wait for the supervisor. Return its exit status, or the negative signal number. Meanwhile reap orphans. `heard`:
    gets the numbers of the forwarded signals.
    """
    while True:
        received = signal.sigwaitinfo(waited_for)
        if received.si_signo != signal.SIGCHLD:
            heard.add(received.si_signo)
            try:
                os.write(writer, bytes((received.si_signo, received.si_code == SI_KERNEL)))
            except OSError:
                pass  # ignore the error: the supervisor has just exited
            continue
        while (reaped := _reap()) is not None:
            if reaped[0] == supervisor:
                return os.waitstatus_to_exitcode(reaped[1])


def _reap() -> tuple[int, int] | None:
    """Reap one child that has exited. Return its pid and wait status, or None if no child has exited."""
    try:
        done, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (done, status) if done else None


def end_all(leave: frozenset[int] = frozenset()) -> int:
    """Kill (SIGKILL) and reap all descendants of this process, except the processes in `leave` and their descendants,
    until none is left. Return their number.

    The loop ends, because killed processes start no others, and this subreaper inherits their children.
    """
    seen: set[int] = set()
    me = os.getpid()
    while True:
        for pid in descendants(me, leave):
            seen.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # ignore a process that has exited since it was listed
        if not [pid for pid in children(me) if pid not in leave]:
            return len(seen)
        try:
            # Wait for the next exit of a child instead of polling.
            done = os.waitid(os.P_ALL, 0, os.WEXITED)
        except ChildProcessError:
            return len(seen)
        if done is not None:
            seen.add(done.si_pid)
