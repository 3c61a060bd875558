"""Nothing of a job outlives its supervisor, however that dies.

`holdfast run` is two processes. The one that was typed is the *guard*: it forks the *supervisor* and waits. Both are
subreapers, the guard above the supervisor above the workers, so each can end everything if the other is killed:

- the supervisor dies (SIGKILL, a crash): every process below it, in any session, becomes the guard's child; the
  guard kills them all, and leaves with 128 + the signal's number;
- the guard dies: the supervisor reads the end of a pipe that only the guard held, kills everything, and writes the
  report itself.

The guard's death also wakes a supervisor that was stopped (PDEATHSIG SIGCONT): it could not read that end.
Workers carry PDEATHSIG as well, so that they end even if both are killed in the same instant. Signals that a person or
a scheduler sends to `holdfast run` reach the guard, which tells the supervisor of them through the pipe. The supervisor
lives in a session of its own: a signal that it gets itself was sent to it by number.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from holdfast.act import standard_streams
from holdfast.act.linux import become_subreaper, children, descendants, die_with_parent, in_background

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Bytes of a signal in the pipe: its number, and whether it was typed at a terminal.
WORD = 2
SI_KERNEL = 0x80


class HandBack(BaseException):
    """Raised by a supervisor that has begun nothing: the guard shall go on itself (a job over many nodes)."""


def guarded(
    supervise: Callable[[int], int],
    on_loss: Callable[[int, int], int | None],
    go_on: Callable[[], int] | None = None,
) -> int:
    """Fork; run `supervise(fd)` in the child, and guard it in this process; the exit status of the job.

    `on_loss(pid, signal)` is called when the supervisor was killed and nothing of the job lives any more; it gives the
    exit status where that is not 128 + signal. Out of `fd` come the signals that the guard gets, `WORD` bytes each, and
    the end of file when it dies. Call it before anything large is imported: the guard's memory is what this process has
    now. `go_on()` gives the exit status instead where the supervisor has raised `HandBack`.
    """
    reader, writer = os.pipe()
    handed_back = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    become_subreaper()
    # Under nohup a hang-up is not for us. (A shell also lets its background jobs ignore SIGINT, but who sends it to
    # this process by its number means it.)
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
        except BaseException:  # a bug of ours must end this process, never run the guard's code in it
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(reader)
    os.set_blocking(writer, False)
    code = _wait(supervisor, waited_for, writer)
    if go_on is not None and _was_told(handed_back):
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited_for)
        return go_on()
    if before is not None and not in_background(os.getpid()):
        # A worker that was killed while it edited a line left the terminal without echo.
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


def _wait(supervisor: int, waited_for: set[signal.Signals], writer: int) -> int:
    """The supervisor's exit status, or minus the signal that ended it. Orphans of orphans are reaped on the way."""
    while True:
        received = signal.sigwaitinfo(waited_for)
        if received.si_signo != signal.SIGCHLD:
            try:
                os.write(writer, bytes((received.si_signo, received.si_code == SI_KERNEL)))
            except OSError:
                pass  # it has just ended by itself
            continue
        while (reaped := _reap()) is not None:
            if reaped[0] == supervisor:
                return os.waitstatus_to_exitcode(reaped[1])


def _reap() -> tuple[int, int] | None:
    """One child that has ended, with its status; None where none has."""
    try:
        done, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (done, status) if done else None


def end_all(leave: frozenset[int] = frozenset()) -> int:
    """SIGKILL everything below this process until nothing is left, and reap it; how many there were.

    It ends: a killed process starts nothing new, and this subreaper inherits the children of each it kills.
    """
    seen: set[int] = set()
    me = os.getpid()
    while True:
        for pid in descendants(me, leave):
            seen.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # gone between look and kill
        if not [pid for pid in children(me) if pid not in leave]:
            return len(seen)
        try:
            # Waits for the next death, of any process: no poll.
            done = os.waitid(os.P_ALL, 0, os.WEXITED)
        except ChildProcessError:
            return len(seen)
        if done is not None:
            seen.add(done.si_pid)
