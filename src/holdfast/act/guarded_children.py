"""A guard of several children: it starts each, tells it of signals, starts it again when it is killed, and ends all.

A *ward* is one child under a name of its own (`/proc/PID/comm`). The first ward is the main one: its exit status is the
guard's, and ends the others. A ward that a signal has killed is started again, once every process that it left behind
is dead: they became the guard's children, which is a subreaper. A ward that ends with a status has ended by itself and
is not started again.

A ward that has promised to act by a moment (`ChildContext.promise`) and does not, since it hangs in a file system or
was stopped, is killed like any other, and with it all that lives below it: the guard touches no file, and so is there.

Each ward reads one pipe: `guard.WORD` bytes a signal, `OVER` when another ward has ended by itself, and the end of file
when the guard dies. The descriptors that all generations of a ward need (a listening socket, a lock) are the guard's:
each child inherits them, so nothing that they stand for is ever let go in between.
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

#: In a ward's pipe: a ward that is not restarted has ended.
OVER = b"\0\0"
MOST_STARTS = 5
#: Restarts within this time of a ward that does not come up (`ChildContext.settled`); after them it is abandoned.
WINDOW_S = 600.0
#: The same for a ward that came up each time: the cause of its deaths is outside, and costs no attempt.
MOST_SETTLED_STARTS = 100
#: Seconds before each restart of those that did not come up.
PAUSES_S = (0.0, 0.0, 1.0, 2.0, 4.0)
#: Seconds until the processes of a killed ward are dead, or in uninterruptible sleep, from which they return to no
#: program.
BURIED_S = 30.0
#: Seconds that the other wards may take to exit once the main one has ended.
LEAVE_S = 30.0
#: Seconds after its promise in which a ward may still act by itself.
PATIENCE_S = 1.0
_WORDS = 64


class SharedDeadline:
    """A moment, in memory that a child and its guard share."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    def make(self, until: float | None) -> None:
        """`until`: seconds on the guard's clock; None: there is no promise."""
        struct.pack_into("d", self._shared, 0, until or 0.0)

    def due(self) -> float | None:
        """The moment from which the guard acts instead."""
        until: float = struct.unpack_from("d", self._shared)[0]
        return until + PATIENCE_S if until else None


class ChildContext:
    """What a ward knows about itself."""

    def __init__(self, fd: int, number: int, settled_fd: int, promise: SharedDeadline) -> None:
        self.fd = fd
        """Readable when the guard has sent a message, and at its end."""
        self.number = number
        """1 for the first of its name, and higher for each that follows."""
        self._settled_fd = settled_fd
        self.promise = promise
        """The moment by which the ward will have acted or renewed its promise; the guard kills it if it has not."""

    def settled(self) -> None:
        """It has come up and does its work: its end is no sign that it cannot."""
        if self._settled_fd >= 0:
            os.write(self._settled_fd, b"+")
            os.close(self._settled_fd)
            self._settled_fd = -1


class RestartLimit:
    """When a ward that was killed is started again, and when it is abandoned. Times: seconds on the guard's clock."""

    def __init__(self) -> None:
        self._killed: list[tuple[float, bool]] = []
        """When it was killed, and whether it had come up."""

    def next_start(self, now: float, *, settled: bool) -> float | None:
        """The ward was killed now; `settled`: it had come up. Returns when it is started again; None: it is not."""
        self._killed = [(at, well) for at, well in self._killed if now - at < WINDOW_S] + [(now, settled)]
        unfit = sum(not well for _, well in self._killed)
        if unfit > MOST_STARTS or len(self._killed) > MOST_SETTLED_STARTS:
            return None
        return now if settled else now + PAUSES_S[unfit - 1]


class ManagedChild:
    """One child of the guard. `carry` runs in it and returns its exit status."""

    def __init__(
        self, name: str, carry: Callable[[ChildContext], int], *, hears: Iterable[int] = (), counts: bool = True
    ) -> None:
        """`name`: at most 15 letters. `hears`: the signals that go to this ward and not to the main one.

        `counts`: the main ward learns when it ends by itself.
        """
        self.name = name
        self.carry = carry
        self.hears = frozenset(hears)
        self.counts = counts
        self.pid = 0
        self.started = 0
        self.due: float | None = None
        """When it is to be started."""
        self.status: int | None = None
        """Its exit status, or minus the signal that ended it, once it is not restarted."""
        self._writer = -1
        self._settled = -1
        self._promise = SharedDeadline()
        self._unsaid: deque[bytes] = deque(maxlen=_WORDS)
        self._limit = RestartLimit()

    @property
    def over(self) -> bool:
        return self.status is not None

    def say(self, word: bytes) -> None:
        """Send it the message now, or as soon as it runs again."""
        if self.over:
            return
        if not self.pid:
            self._unsaid.append(word)
            return
        try:
            os.write(self._writer, word)
        except OSError:
            pass  # it has just ended by itself, or has left more words unread than a pipe holds

    def fork(self, guard: int, others: Sequence[ManagedChild], *, deaf: Iterable[int]) -> None:
        """Start it. `deaf`: the signals that the guard has blocked and that the child takes again."""
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
            except BaseException:  # a bug of ours must end this process, never run the guard's code in it
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
        """When it is to be killed, as far as is known at present."""
        return self._promise.due() if self.pid else None

    def end(self) -> None:
        """Kill it, once: one that cannot even be killed is not asked again."""
        self._promise.make(None)
        os.kill(self.pid, signal.SIGKILL)

    @property
    def ends(self) -> tuple[int, ...]:
        """The guard's ends of its pipes."""
        return (self._writer, self._settled) if self.pid else ()

    def ended(self, status: int, now: float) -> None:
        """It was reaped, with an exit status, or minus a signal. It is restarted where its limit allows it."""
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
    """Keeps its wards until the main one has ended by itself, or cannot be kept.

    `now`: seconds on a clock that does not jump. `say`: one line for the user's terminal.
    """

    def __init__(
        self,
        wards: Sequence[ManagedChild],
        now: Callable[[], float],
        say: Callable[[str], None],
        killed: Callable[[str, int], str] = lambda name, number: "",
    ) -> None:
        """`killed`: the cause of a death by a ward's name and the signal, in words, as far as it is known."""
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
        """Start them all, and wait; returns the main one's exit status, or minus the signal that ended it for good.

        `waited_for`: the signals that are blocked here, SIGCHLD among them: the guard reacts to them.
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
            self._leave_by = self._now()  # the job is over, and a user who asks again does not want to wait
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
        """Live processes below this process and below none of its wards."""
        return descendants(self._pid, frozenset(ward.pid for ward in self._wards if ward.pid))

    def _bury(self) -> None:
        """Ends the processes that a ward left behind, and all that they start meanwhile."""
        for pid in self._strays():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # gone between look and kill

    def _start_due(self) -> None:
        now = self._now()
        due = [ward for ward in self._wards if ward.due is not None and ward.due <= now]
        if not due or (self._strays() and self._buried_by is not None and now < self._buried_by):
            return  # the next death of a child is the next look
        for ward in due:
            ward.fork(self._pid, self._wards, deaf={signal.SIGCHLD})
