"""A guard of several child processes. It starts them, forwards signals, restarts a killed child, and ends all of them.

Each child (`wards`) has its own process name (`/proc/PID/comm`). The first child is the main one: when it exits, the
guard ends the others and exits with the same status. The guard, a subreaper, adopts the processes that a killed child
leaves behind, kills them, and then restarts the child. It does not restart a child that exits with a status.

A child may set a deadline by which it must act (`ChildContext.promise`). If the child misses the deadline, because it
hangs in a file system or is stopped, the guard kills it with all its descendants. The guard touches no file, so it
cannot hang.

Each child reads one pipe: `guard.WORD` bytes per signal, `OVER` when another child has ended for good, and the end of
file when the guard dies. The guard keeps the descriptors that a restarted child needs again (a listening socket, a
lock), so the port or the lock is never free in between.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from holdfast.act.guard import SI_KERNEL, end_all
from holdfast.act.linux import become_subreaper, descendants, die_with_parent, name_process
from holdfast.act.termination import kill

#: The message to a child that another child has ended and is not restarted.
OVER = b"\0\0"
MOST_STARTS = 5
#: The guard counts the kills of a child in the last this many seconds. After more than `MOST_STARTS` kills before the
#: child had started (`ChildContext.settled`), the guard gives it up.
WINDOW_S = 600.0
#: The guard also gives up a child after more than this many kills of any kind within `WINDOW_S`. The limit is high,
#: because a child that had started was probably killed from outside.
MOST_SETTLED_STARTS = 100
#: Seconds before each restart of a child that was killed before it had started.
PAUSES_S = (0.0, 0.0, 1.0, 2.0, 4.0)
#: Seconds that the leftover processes of a killed child may take to die. Later ones are in uninterruptible sleep and
#: run no more code.
BURIED_S = 30.0
#: Seconds that the other children have to exit after the main child has ended.
LEAVE_S = 30.0
#: Seconds after a child's deadline at which the guard kills the child.
PATIENCE_S = 1.0
_WORDS = 64


class SharedDeadline:
    """A deadline in memory that a child shares with its guard."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    def make(self, until: float | None) -> None:
        """Set the deadline. `until`: seconds on the guard's clock; None removes the deadline."""
        struct.pack_into("d", self._shared, 0, until or 0.0)

    def due(self) -> float | None:
        """Return when the guard will kill the child, in seconds on the guard's clock; None without a deadline."""
        until: float = struct.unpack_from("d", self._shared)[0]
        return until + PATIENCE_S if until else None


class ChildContext:
    """A child's link to its guard. The child gets it in its own process."""

    def __init__(self, fd: int, number: int, settled_fd: int, promise: SharedDeadline) -> None:
        """Store the data. `fd`: the read end of the child's pipe. `number`: how often the child was started.
        `settled_fd`: the fd on which the child reports that it has started. `promise`: the deadline shared with the
        guard."""
        #: The read end of the child's pipe, with the guard's messages, and the end of file when the guard dies.
        self.fd = fd
        #: How often the child was started: 1 for its first process, and one more for each restart.
        self.number = number
        self._settled_fd = settled_fd
        #: The child's deadline. Before it the child must act or set a later deadline; otherwise the guard kills it.
        self.promise = promise

    def settled(self) -> None:
        """Report that the child has started and works. A later kill is then no failed start."""
        if self._settled_fd >= 0:
            os.write(self._settled_fd, b"+")
            os.close(self._settled_fd)
            self._settled_fd = -1


class RestartLimit:
    """Decides when a killed child is restarted, and when the guard gives it up. Times are seconds on the guard's
    clock.
    """

    def __init__(self) -> None:
        #: The time of each recent kill, and whether the child had started by then.
        self._killed: list[tuple[float, bool]] = []

    def next_start(self, now: float, *, settled: bool) -> float | None:
        """Count a kill at time `now`. `settled`: the child had started by then. Return the time of the restart; None if
        the guard gives up the child.
        """
        self._killed = [(at, well) for at, well in self._killed if now - at < WINDOW_S] + [(now, settled)]
        unfit = sum(not well for _, well in self._killed)
        if unfit > MOST_STARTS or len(self._killed) > MOST_SETTLED_STARTS:
            return None
        return now if settled else now + PAUSES_S[unfit - 1]


class ManagedChild:
    """One child process of the guard, which restarts it if it is killed."""

    def __init__(
        self, name: str, carry: Callable[[ChildContext], int], *, hears: Iterable[int] = (), counts: bool = True
    ) -> None:
        """Create a child, not started yet.

        `name`: the process name, at most 15 letters. `carry`: runs in the child and returns its exit status. `hears`:
        the signals that the guard forwards to this child instead of the main one. `counts`: the guard notifies the
        other children (`OVER`) when this child has ended for good.
        """
        self.name = name
        self.carry = carry
        self.hears = frozenset(hears)
        self.counts = counts
        self.pid = 0
        self.started = 0
        #: When the guard restarts the child, in seconds on the guard's clock; None if no restart is due.
        self.due: float | None = None
        #: The child's exit status, or the negative signal number; None while it runs, or before a restart.
        self.status: int | None = None
        self._writer = -1
        self._settled = -1
        self._promise = SharedDeadline()
        self._unsaid: deque[bytes] = deque(maxlen=_WORDS)
        self._limit = RestartLimit()

    @property
    def over(self) -> bool:
        """Return whether the child has ended and will not be restarted."""
        return self.status is not None

    def say(self, word: bytes) -> None:
        """Write the message `word` to the child's pipe now, or after the child's restart."""
        if self.over:
            return
        if not self.pid:
            self._unsaid.append(word)
            return
        try:
            os.write(self._writer, word)
        except OSError:
            pass  # ignore the error: the child has just exited, or its pipe is full

    def fork(self, guard: int, others: Sequence[ManagedChild], *, deaf: Iterable[int]) -> None:
        """Start the child. `deaf`: the signals that the guard has blocked and the child unblocks. `others`: the other
        children, whose pipes the child closes.
        """
        reader, self._writer = os.pipe()
        self._settled, settled = os.pipe()
        self.started += 1
        self.due = None
        self._promise.make(None)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for fd in (self._writer, self._settled, *(fd for other in others for fd in other.ends)):
                    os.close(fd)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, deaf)
                os.setsid()
                die_with_parent(guard, signal.SIGCONT)
                become_subreaper()
                name_process(self.name)
                status = self.carry(ChildContext(reader, self.started, settled, self._promise))
            except BaseException:  # catch bugs of holdfast too: this child must never run the guard's code below
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(reader)
        os.close(settled)
        os.set_blocking(self._writer, False)
        self.pid = pid
        while self._unsaid:
            self.say(self._unsaid.popleft())

    def promised(self) -> float | None:
        """Return when the guard will kill the child for a missed deadline; None without a deadline or a process."""
        return self._promise.due() if self.pid else None

    def end(self) -> None:
        """Kill the child and clear its deadline. A process in uninterruptible sleep is then not killed twice."""
        self._promise.make(None)
        os.kill(self.pid, signal.SIGKILL)

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the guard's fds of the pipes to the child; empty if the child does not run."""
        return (self._writer, self._settled) if self.pid else ()

    def ended(self, status: int, now: float) -> None:
        """Store the child's exit status, or the negative signal number. Schedule a restart if the limit allows it."""
        settled = self._has_settled()
        for fd in self.ends:
            os.close(fd)
        self.pid = 0
        if status >= 0:
            self.status = status
            return
        self.due = self._limit.next_start(now, settled=settled)
        if self.due is None:
            self.status = status

    def _has_settled(self) -> bool:
        os.set_blocking(self._settled, False)
        try:
            return bool(os.read(self._settled, 1))
        except BlockingIOError:
            return False


class Guard:
    """Keeps children running until the main one has exited, or until the guard gives it up."""

    def __init__(
        self,
        wards: Sequence[ManagedChild],
        now: Callable[[], float],
        say: Callable[[str], None],
        killed: Callable[[str, int], str] = lambda name, number: "",
    ) -> None:
        """Create a guard.

        `wards`: the children, the main one first. `now`: returns seconds on a monotonic clock. `say`: prints one line
        on the user's terminal. `killed(name, signal)`: returns the cause of a child's death as text, if it is known.
        """
        self._killed = killed
        self._wards = wards
        self._main = wards[0]
        self._now = now
        self._say = say
        self._pid = os.getpid()
        self._heard: frozenset[int] = frozenset()
        self._leave_by: float | None = None
        self._buried_by: float | None = None

    def keep(self, waited_for: Iterable[int]) -> int:
        """Start all children and wait. Return the main child's exit status, or the negative number of the signal that
        ended it for good.

        `waited_for`: the blocked signals that the guard handles, including SIGCHLD.
        """
        become_subreaper()
        self._heard = frozenset(waited_for)
        for ward in self._wards:
            ward.fork(self._pid, self._wards, deaf={signal.SIGCHLD})
        while not self._all_over():
            wake = self._wake()
            limit_s = 3600.0 if wake is None else max(0.0, wake - self._now())
            received = signal.sigtimedwait(self._heard, limit_s)
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._tell(received.si_signo, received.si_code == SI_KERNEL)
            self._reap()
            self._end_what_hangs()
            self._bury()
            self._start_due()
        end_all()
        assert self._main.status is not None, "all are over"
        return self._main.status

    def _all_over(self) -> bool:
        if all(ward.over for ward in self._wards):
            return True
        return self._leave_by is not None and self._now() >= self._leave_by

    def _wake(self) -> float | None:
        wakes = [ward.due for ward in self._wards] + [self._leave_by]
        wakes += [ward.promised() for ward in self._wards]
        if any(ward.due is not None for ward in self._wards):
            wakes.append(self._buried_by)
        later = [wake for wake in wakes if wake is not None]
        if self._buried_by is not None and self._strays():
            promised = [ward.promised() for ward in self._wards]
            later = [wake for wake in (self._buried_by, self._leave_by, *promised) if wake is not None]
        return min(later, default=None)

    def _tell(self, number: int, typed: bool) -> None:
        ward = next((ward for ward in self._wards if number in ward.hears and not ward.over), self._main)
        if self._main.over:
            # Exit soon, because the job is over and the user has sent another signal.
            self._leave_by = self._now()
        ward.say(bytes((number, typed)))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            ward = next((ward for ward in self._wards if ward.pid == pid), None)
            if ward is not None:
                self._ended(ward, pid, os.waitstatus_to_exitcode(status))

    def _ended(self, ward: ManagedChild, pid: int, status: int) -> None:
        now = self._now()
        ward.ended(status, now)
        if self._leave_by is not None:
            ward.status, ward.due = status, None
        if ward.over:
            if ward is self._main:
                self._leave_by = now + (LEAVE_S if status >= 0 else 0.0)
            if status < 0:
                self._say(f"{ward.name} (pid {pid}) was ended by {self._by(ward, status)} too often: given up")
            if ward.counts:
                for other in self._wards:
                    other.say(OVER)
            return
        self._buried_by = now + BURIED_S
        self._say(f"{ward.name} (pid {pid}) was ended by {self._by(ward, status)}: a new one is started")

    def _by(self, ward: ManagedChild, status: int) -> str:
        known = self._killed(ward.name, -status)
        return signal.Signals(-status).name + (f" ({known})" if known else "")

    def _end_what_hangs(self) -> None:
        now = self._now()
        for ward in self._wards:
            due = ward.promised()
            if due is not None and due <= now:
                self._say(f"{ward.name} (pid {ward.pid}) did not act when it had to, and is killed with all below it")
                ward.end()

    def _strays(self) -> list[int]:
        """Return the live descendants of this process that belong to no child in `wards`."""
        return descendants(self._pid, frozenset(ward.pid for ward in self._wards if ward.pid))

    def _bury(self) -> None:
        """Kill the processes that dead children left behind."""
        kill(self._strays())

    def _start_due(self) -> None:
        now = self._now()
        due = [ward for ward in self._wards if ward.due is not None and ward.due <= now]
        if not due or (self._strays() and self._buried_by is not None and now < self._buried_by):
            return  # wait for the next SIGCHLD, which calls this method again
        for ward in due:
            ward.fork(self._pid, self._wards, deaf={signal.SIGCHLD})
