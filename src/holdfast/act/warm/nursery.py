"""The supervisor's side of one nursery: a prewarmed process that imports modules, forks workers on request,
and may die at any time.

No call in this module blocks. A *ticket* requests a worker. The answer (a prepared process, or None for a cold start)
comes within the time limits: from `ask`, from `tick`, or through the callback `heard`.
"""

from __future__ import annotations

import enum
import marshal
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import children
from holdfast.act.linux import how_ended
from holdfast.act.spawn import spawn
from holdfast.act.warm.nursery_input import NurseryInput
from holdfast.act.warm.nursery_protocol import Idle, claim, is_awake, receive, rouse
from holdfast.act.warm.unsafe_imports import Lessons
from holdfast.act.warm.warm_command import difference, shared
from holdfast.act.worker_starts import Ticket, WarmStart
from holdfast.children import Child

if TYPE_CHECKING:
    from holdfast.reactor import Reactor

#: Seconds for a fork, or for a check of the source files. After them the prewarmed process counts as hung.
ANSWER_S = 10.0
#: After this many deaths or hangs without a started worker in between, no further prewarmed process is started.
MOST_DEATHS = 3
_ENTRY_POINT = Path(__file__).with_name("entry_point")


class NurseryState(enum.Enum):
    OFF = enum.auto()
    IMPORTING = enum.auto()
    READY = enum.auto()
    GIVEN_UP = enum.auto()


class Nursery:
    """Starts one prewarmed process (a nursery) and gets workers from it."""

    def __init__(
        self,
        prepared: NurseryInput,
        *,
        lessons: Lessons,
        reactor: Reactor,
        heard: Callable[[list[WarmStart], float], None],
        say: Callable[[str], None],
    ) -> None:
        """Create a nursery whose process has not started.

        `prepared`: the command and the environment of its workers. `lessons`: the unsafe imports that earlier processes
        found. `heard`: receives the answers that come later, with their time. `say`: prints why workers start cold."""
        self._input = prepared
        self._lessons = lessons
        self._answer_s = min(ANSWER_S, prepared.import_s)
        self._reactor = reactor
        self._deliver = heard
        self._say = say
        self.state = NurseryState.OFF
        #: How many prewarmed processes have died since a worker was last started from one.
        self._deaths = 0
        self._process: Child | None = None
        self._control: socket.socket | None = None
        self._waiting: deque[Ticket] = deque()
        self._idle: deque[Idle] = deque()
        self._pipe: int | None = None
        self._asked = 0
        #: Number of idle forks to keep ready for later requests.
        self._keep = 0
        #: Number of idle forks that have died and were replaced.
        self._replaced = 0
        #: The number of the last attempt for which the source files were checked and found unchanged.
        self._fresh_for = 0
        self._checking: int | None = None
        self._deadline: float | None = None
        self._answers: list[WarmStart] = []
        #: Messages from the prewarmed process that are not handled yet, each with its fds.
        self._heard: deque[tuple[tuple[Any, ...], list[int]]] = deque()
        children.inform(self._take_messages)

    def fits(self, ticket: Ticket) -> str:
        """Return up to three variables whose values prevent this worker from starting in this prewarmed process,
        separated by commas; "" if there are none.
        """
        return difference(self._input.env, shared(ticket.env))

    # ------------------------------------------------------------- methods that start the imports and request workers

    def begin(self, now: float) -> None:
        """Start the imports before any worker is requested."""
        if self.state is NurseryState.OFF:
            self._start(now)

    def ask(self, ticket: Ticket, now: float) -> list[WarmStart]:
        """Request a worker. Return the answers that are known now, also those to earlier requests."""
        self._waiting.append(ticket)
        self._keep, self._replaced = 0, 0
        self.begin(now)
        self.rouse()
        self._serve(now)
        return self._take()

    def rouse(self) -> None:
        """Continue the prewarmed process if it was stopped (SIGSTOP) and is needed."""
        wanted = self._waiting or self._asked or self._checking is not None
        if wanted and self._process is not None and rouse(self._process.pid, self._process.pidfd):
            self._say(f"warm: the nursery (pid {self._process.pid}) was stopped; holdfast sent it SIGCONT")

    def stand_by(self, count: int, now: float) -> None:
        """Keep `count` idle forks ready for later requests. Fork them as soon as possible, and replace dead ones."""
        self._keep = count
        self._top_up(now)

    def _top_up(self, now: float) -> None:
        missing = self._keep - len(self._idle) - self._asked
        if self.state is NurseryState.READY and missing > 0 and self._request(("fork", missing), now):
            self._asked += missing
            self.rouse()

    def cancel(self) -> None:
        """Drop all waiting requests for workers."""
        self._waiting.clear()

    # ----------------------------------------------------------------- methods that start and end the prewarmed process

    def _start(self, now: float) -> None:
        self._fresh_for, self._checking = 0, None
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = self._input
        env = order.environment(theirs.fileno(), str(_ENTRY_POINT))
        config = order.briefing(self._lessons.of(order.plan, order.cwd))
        null = os.open(os.devnull, os.O_RDONLY)
        # Use a pipe like the workers', because Python checks only at its start whether a stream is seekable.
        reader, writer = os.pipe()
        try:
            if not (_ENTRY_POINT / "sitecustomize.py").exists():
                # Fail: without this directory the interpreter would run the script itself.
                raise OSError(f"{_ENTRY_POINT} is gone")
            mine.send(marshal.dumps(config))
            os.set_inheritable(theirs.fileno(), True)
            process = spawn(
                order.plan.command,
                env,
                cwd=order.cwd,
                stdin_fd=null,
                stdout_fd=writer,
                stderr_fd=writer,
                keep=(theirs.fileno(),),
                deaf=True,
            )
        except OSError as error:
            mine.close()
            os.close(reader)
            self._give_up(f"no nursery could be started: {error}", now)
            return
        finally:
            theirs.close()
            for fd in (null, writer):
                os.close(fd)
        os.write(process.go_fd, b"g")
        os.close(process.go_fd)
        os.close(process.status_fd)
        self._process, self._control, self._pipe = Child(process.pid, process.pidfd), mine, reader
        self.state = NurseryState.IMPORTING
        self._deadline = now + order.import_s
        for fd in (mine.fileno(), process.pidfd):
            self._reactor.watch(fd, self._ready)

    def _end(self) -> None:
        """Kill the prewarmed process and its idle forks, and reset this object's state."""
        for message, fds in self._heard:
            if _is_birth(message, fds):
                children.forget(message[1])
            for fd in fds:
                os.close(fd)
        self._heard.clear()
        if self._control is not None:
            self._reactor.forget(self._control.fileno())
            self._control.close()
            self._control = None
        if self._process is not None:
            _reap_later(self._reactor, self._process)
            self._process = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        while self._idle:
            self._drop(self._idle.popleft())
        self._asked = 0
        self._checking = None
        self._deadline = None
        self.state = NurseryState.OFF

    def _drop(self, idle: Idle) -> None:
        idle.channel.close()
        _reap_later(self._reactor, idle.child)

    def _failed(self, why: str, now: float) -> None:
        """Handle a prewarmed process that died or hung. Waiting workers start cold, and a new prewarmed process starts,
        unless `MOST_DEATHS` in a row have failed.
        """
        self._end()
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            self._give_up(f"{why}, {self._deaths} times in a row", now)
            return
        if self._waiting:
            self._say(f"warm start: {why}: attempt {self._waiting[0].attempt} starts cold")
            self._refuse()
        self._start(now)

    def _give_up(self, why: str, now: float) -> None:
        self._end()
        self.state = NurseryState.GIVEN_UP
        self._say(f"warm start is off, workers start cold: {why}")
        self._refuse()

    def _refuse(self) -> None:
        while self._waiting:
            self._answers.append(WarmStart(self._waiting.popleft(), None))

    # ------------------------------------------------------------ methods that handle messages of the prewarmed process

    def _ready(self, fd: int, now: float) -> None:
        if self._process is not None and fd == self._process.pidfd:
            while self._receive(now):
                pass
            if self._process is not None and self._process.pidfd == fd:
                self._failed(f"the nursery (pid {self._process.pid}) died{how_ended(self._process.pidfd)}", now)
        elif self._control is not None and fd == self._control.fileno():
            self._receive(now)
        else:
            for idle in [idle for idle in self._idle if idle.child.pidfd == fd]:
                self._idle.remove(idle)
                self._drop(idle)
                self._replaced += 1
                if self._replaced > MOST_DEATHS + self._keep:
                    # Keep no idle forks, because the cause that killed the previous ones would kill new ones too.
                    self._keep = 0
        self._serve(now)
        self._top_up(now)
        self._deliver(self._take(), now)

    def _receive(self, now: float) -> bool:
        """Handle one message from the prewarmed process; return False if there is none."""
        if not self._heard and not self._take_message():
            return False
        message, fds = self._heard.popleft()
        self._understand(message, fds, now)
        return True

    def _take_message(self) -> bool:
        if self._control is None:
            return False
        message = receive(self._control)
        if message is None:
            return False
        self._heard.append(message)
        if _is_birth(*message):
            children.note(message[0][1])
        return True

    def _take_messages(self) -> None:
        """Read all messages from the prewarmed process.

        A forked worker sends a message before it becomes a child of this process, so after this call every child is
        known.
        """
        while self._take_message():
            pass

    def _understand(self, message: tuple[Any, ...], fds: list[int], now: float) -> None:
        match message:
            case ("ready", int(), int(), float(), str(left), lesson):
                self.state = NurseryState.READY
                self._deadline = None
                self._learn(lesson)
                if left:
                    self._say(f"warm: {left}")
            case ("no", str(why), lesson):
                self._learn(lesson)
                self._give_up(why, now)
            case ("moved", int(pid)) if fds and self._process is not None:
                # The prewarmed process has undone an import, so a backup process has taken its place.
                _reap_later(self._reactor, self._process)
                self._process = Child(pid, fds[0])
                self._reactor.watch(fds[0], self._ready)
            case ("born", int(pid)):
                self._asked = max(0, self._asked - 1)
                if len(fds) < 2:
                    children.forget(pid)
                    for fd in fds:
                        os.close(fd)
                    self._failed("its workers cannot be reached (too many open files?)", now)
                    return
                self._idle.append(Idle(Child(pid, fds[0]), socket.socket(fileno=fds[1])))
                self._reactor.watch(fds[0], self._ready)
                self._answered()
            case ("failed", int(), str(why)):
                self._failed(why, now)
            case ("fresh", str(path)):
                attempt, self._checking = self._checking, None
                self._answered()
                if path:
                    self._say(f"warm start: {path} has changed: importing anew")
                    self._end()
                    self._start(now)
                elif attempt is not None:
                    self._fresh_for = attempt
            case _:
                self._failed(f"the nursery said something unknown: {message!r:.80}", now)

    def _learn(self, lesson: object) -> None:
        self._lessons.learn(self._input.plan, self._input.cwd, lesson)

    def _answered(self) -> None:
        if not self._asked and self._checking is None:
            self._deadline = None

    # --------------------------------------------------------------------------------------- methods that request forks

    def _serve(self, now: float) -> None:
        """Answer the waiting requests for workers, as far as possible now."""
        if self.state is NurseryState.GIVEN_UP:
            self._refuse()
        if self.state is not NurseryState.READY or not self._waiting:
            return
        missing = len(self._waiting) - len(self._idle) - self._asked
        if missing > 0:
            if not self._request(("fork", missing), now):
                return
            self._asked += missing
        if self._fresh_for != self._waiting[0].attempt and self._checking is None:
            # Send this request after the fork requests, because forks take longer. If a file has changed, the forks are
            # dropped with the prewarmed process.
            self._checking = self._waiting[0].attempt
            self._request(("check",), now)
        while self._waiting and self._idle and self._fresh_for == self._waiting[0].attempt:
            self._claim(self._idle.popleft())
        if len(self._waiting) > len(self._idle) + self._asked:
            self._serve(now)  # request another fork, because this one was unusable

    def _request(self, message: tuple[Any, ...], now: float) -> bool:
        """Send a request to the prewarmed process. If that fails, treat the process as failed and return False."""
        assert self._control is not None
        self._deadline = now + self._answer_s
        try:
            self._control.send(marshal.dumps(message), socket.MSG_DONTWAIT)
        except OSError as error:
            self._failed(f"the nursery cannot be reached: {error.strerror}", now)
            return False
        return True

    def _claim(self, idle: Idle) -> None:
        """Make an idle fork the worker of the first waiting request. Drop a fork that cannot answer."""
        process = claim(idle, self._waiting[0]) if is_awake(idle) else None
        if process is None:
            self._drop(idle)
            return
        self._reactor.forget(idle.child.pidfd)
        self._deaths = 0
        self._answers.append(WarmStart(self._waiting.popleft(), process))

    def _take(self) -> list[WarmStart]:
        answers, self._answers = self._answers, []
        return answers

    # ----------------------------------------------------------------------------------- methods that check time limits

    def next_wake(self) -> float | None:
        return 0.0 if self._heard else self._deadline

    def tick(self, now: float) -> list[WarmStart]:
        """Handle received messages and the time limit. Return the answers to requests for workers."""
        if self._heard:
            while self._heard:
                self._receive(now)
            self._serve(now)
            self._top_up(now)
        if self._deadline is not None and now >= self._deadline:
            if self.state is NurseryState.IMPORTING:
                # Start no other prewarmed process, because its imports would take too long too.
                self._give_up(f"importing took longer than {self._input.import_s:g} s", now)
            else:
                self._failed(f"the nursery did not answer within {self._answer_s:g} s", now)
        return self._take()

    def close(self) -> None:
        self._end()
        children.inform_no_more(self._take_messages)
        self.state = NurseryState.GIVEN_UP


def _is_birth(message: tuple[Any, ...], fds: list[int]) -> bool:
    """Return whether the message reports a process that is, or soon will be, a child of this process."""
    return bool(fds) and message[0] in ("born", "moved") and len(message) > 1 and isinstance(message[1], int)


def _reap_later(reactor: Reactor, child: Child) -> None:
    """Kill the child, and reap it once its pidfd is readable."""

    def reap(fd: int, now: float) -> None:
        reactor.forget(fd)
        child.reap()

    reactor.forget(child.pidfd)
    reactor.watch(child.pidfd, reap)
    child.kill()
