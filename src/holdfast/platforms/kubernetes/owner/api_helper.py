"""Send requests to Kubernetes' API through a client process, so that the owner never blocks.

    asking = ApiHelper(reactor)
    asking.ask(Method.GET, "/api/v1/namespaces/ns/pods/p", done)      calls done(answer, now), which returns events
    asking.follow("/api/v1/namespaces/ns/pods", heard, query)         calls heard(page or change, now), likewise

The first request starts the client process. If the process exits, it is restarted and all followed objects are listed
again. While the API server is away, requests are retried with a doubling pause until `patience_s` has passed. The queue
of unsent requests is bounded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.children import Child, start
from holdfast.import_path import module_command
from holdfast.platforms.kubernetes.objects.client_messages import (
    DOUBT_S,
    MOST_LINE_BYTES,
    TEMPORARY,
    Answered,
    ApiTrouble,
    Call,
    Drop,
    Follow,
    FromClient,
    Listed,
    Method,
    ToClient,
    Unseen,
)
from holdfast.untrusted import Malformed, json_as

if TYPE_CHECKING:
    from holdfast.platforms.kubernetes.objects.client_messages import Changed
    from holdfast.reactor import DescriptorWatch, DueCall, News, Reactor

    Done = Callable[[Answered, float], News]
    Heard = Callable[[Listed | Changed | Unseen, float], News]

#: Time limit of one try of a request, in seconds.
LIMIT_S = 5.0
#: How long to wait for the client process's answer after `LIMIT_S`, in seconds.
GRACE_S = 3.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
#: Maximum size of the requests that wait for the client process, in bytes. Further requests fail at once with AWAY.
MOST_WAITING_BYTES = 16 << 20
_BITE = 1 << 20


class ApiHelper:
    """Sends this process's requests to the API server, and manages the client process for them."""

    def __init__(self, reactor: Reactor, environment: Mapping[str, str] | None = None) -> None:
        self.reactor = reactor
        self._environment = dict(os.environ if environment is None else environment)
        self._number = 0
        self._questions: dict[int, _Question] = {}
        self._followed: dict[int, tuple[Follow, Heard]] = {}
        self._helper: _Helper | None = None
        self._again: DueCall | None = None
        self._pause_s = FIRST_PAUSE_S
        self._closed = False

    def ask(
        self,
        method: Method,
        path: str,
        done: Done,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        limit_s: float = LIMIT_S,
        patience_s: float = 0.0,
        doubt_s: float = DOUBT_S,
    ) -> Callable[[], None]:
        """Send a request. Return a function that cancels the request.

        `done`: called once, by the reactor, with the answer.
        `limit_s`: time limit of one try.
        `patience_s`: how long to retry while the API server is away. Set it only if the request may safely be repeated.
        `doubt_s`: how long to retry a refused request, at most `patience_s`. Zero: report the first refusal.
        `query`: query parameters of the URL. `body`: the object that is sent as JSON.
        """
        self._number += 1
        call = Call(number=self._number, method=method, path=path, query=query or {}, body=body, limit_s=limit_s)
        question = _Question(self, call, done, until=self.reactor.now() + patience_s, doubt_s=doubt_s)
        self._questions[call.number] = question
        question.begin(self.reactor.now())
        return question.close

    def follow(self, path: str, heard: Heard, query: Mapping[str, str] | None = None) -> Callable[[], None]:
        """Call `heard` with all objects at the path, then with each change. Return a function that ends the watch."""
        self._number += 1
        follow = Follow(number=self._number, path=path, query=query or {})
        self._followed[follow.number] = (follow, heard)
        if self._helper is not None:
            self._helper.send(follow)
        else:
            self._start()  # a new client process gets every watch in `_followed`

        def end() -> None:
            if self._followed.pop(follow.number, None) is not None and self._helper is not None:
                self._helper.send(Drop(number=follow.number))

        return end

    def close(self) -> None:
        """End the client process. After that no callback is called."""
        self._closed = True
        for question in tuple(self._questions.values()):
            question.close()
        self._followed.clear()
        if self._again is not None:
            self._again.close()
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    # --------------------------------------------------------------------------------- managing the client process

    def send(self, call: Call) -> bool:
        """Send a request to the client process. Return False if its queue is full or it does not run."""
        if self._helper is None:
            self._start()
        return self._helper is not None and self._helper.send(call)

    def forget(self, number: int, *, asked: bool) -> None:
        """Forget the request with this number. `asked`: whether the request was sent. If so, the client process gets a
        `Drop`.
        """
        self._questions.pop(number, None)
        if asked and self._helper is not None:
            self._helper.send(Drop(number=number))

    def _start(self) -> None:
        """Start the client process and send it every open watch. If the start fails, try again later."""
        if self._again is not None or self._closed:
            return
        command = [*module_command("holdfast.platforms.kubernetes.client")]
        try:
            self._helper = _Helper(self.reactor, command, self._environment, self._on_message, self._ended)
        except OSError:
            self._later()
            return
        for follow, _ in self._followed.values():
            self._helper.send(follow)

    def _later(self) -> None:
        self._again = self.reactor.at(self.reactor.now() + self._pause_s, self._due)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _due(self, now: float) -> News:
        self._again = None
        if self._followed or self._questions:
            self._start()
        return None

    def _ended(self, now: float) -> News:
        """Handle the client process's exit: restart the process after a pause, and retry its requests."""
        self._helper = None
        if self._closed:
            return None
        self._later()
        news: list[Any] = []
        said = "the client for Kubernetes has ended, and is started again"
        for question in tuple(self._questions.values()):
            if question.asked:
                answer = Answered(number=question.call.number, trouble=ApiTrouble.AWAY, said=said)
                news += question.answered(answer, now) or ()
        return news

    def _on_message(self, message: FromClient, now: float) -> News:
        if isinstance(message, Answered):
            self._pause_s = FIRST_PAUSE_S
            question = self._questions.get(message.number)
            return question.answered(message, now) if question is not None else None
        followed = self._followed.get(message.number)
        return followed[1](message, now) if followed is not None else None


class _Question:
    """One request to the API server, with its retries."""

    def __init__(self, asking: ApiHelper, call: Call, done: Done, until: float, doubt_s: float) -> None:
        """`asking`: sends the request.

        `call`: the request.
        `done`: called once, with the answer.
        `until`: end of the retries, in seconds on the reactor's clock.
        `doubt_s`: how long a refusal is retried, in seconds.
        """
        self.call = call
        self.asked = False
        self._asking = asking
        self._done = done
        self._until = until
        self._doubt_s = doubt_s
        #: When the API server first refused the request.
        self._refused_at: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._moment: DueCall | None = None

    def begin(self, now: float) -> News:
        """Start a try of the request."""
        self.asked = self._asking.send(self.call)
        if self.asked:
            self._moment = self._asking.reactor.at(now + self.call.limit_s + GRACE_S, self._slow)
        else:
            # Report the failure from the reactor, because the caller has not returned from `ask` yet.
            self._moment = self._asking.reactor.at(now, self._not_sent)
        return None

    def close(self) -> None:
        self._settle()
        self._asking.forget(self.call.number, asked=self.asked)

    def answered(self, answer: Answered, now: float) -> News:
        self._settle()
        self.asked = False
        until = self._until
        if answer.trouble is ApiTrouble.REFUSED:
            self._refused_at = now if self._refused_at is None else self._refused_at
            until = min(until, self._refused_at + self._doubt_s)
        if (answer.trouble in TEMPORARY or answer.trouble is ApiTrouble.REFUSED) and now + self._pause_s < until:
            self._moment = self._asking.reactor.at(now + self._pause_s, self.begin)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return None
        self._asking.forget(self.call.number, asked=False)
        return self._done(answer, now)

    def _settle(self) -> None:
        if self._moment is not None:
            self._moment.close()
            self._moment = None

    def _not_sent(self, now: float) -> News:
        said = "the client for Kubernetes cannot be asked just now"
        return self.answered(Answered(number=self.call.number, trouble=ApiTrouble.AWAY, said=said), now)

    def _slow(self, now: float) -> News:
        said = f"the API server has not answered within {self.call.limit_s:g} s"
        return self.answered(Answered(number=self.call.number, trouble=ApiTrouble.SLOW, said=said), now)


class _Helper:
    """A client process and its two pipes. The constructor raises OSError if the process cannot be started."""

    def __init__(
        self,
        reactor: Reactor,
        command: Sequence[str],
        environment: Mapping[str, str],
        heard: Callable[[FromClient, float], News],
        ended: Callable[[float], News],
    ) -> None:
        """Start the client process.

        `command`: its command line.
        `heard`: called with each of its messages.
        `ended`: called after the process has exited.
        """
        self._heard = heard
        self._ended = ended
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            given, self._to, self._from, output = pipes
            # The client ignores SIGTERM: its answers are still needed when SIGTERM goes to every process of the
            # container.
            child = start(command, output=output, errors=2, given=given, env=environment, deaf=(signal.SIGTERM,))
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        self._child: Child = child
        os.close(given)
        os.close(output)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._unsent = bytearray()
        self._unread = bytearray()
        self._reactor = reactor
        self._reading = reactor.watch(self._from, self._readable)
        self._writing: DescriptorWatch | None = None
        self._over = reactor.watch(child.pidfd, self._died)

    def send(self, message: ToClient) -> bool:
        """Send a message. Return False if too much unsent data is waiting."""
        line = msgspec.json.encode(message) + b"\n"
        if len(self._unsent) + len(line) > MOST_WAITING_BYTES:
            return False
        self._unsent += line
        self._write()
        return True

    def end(self) -> None:
        self._release()
        self._over.close()
        self._child.end()

    def _write(self) -> None:
        while self._unsent:
            try:
                written = os.write(self._to, self._unsent[:_BITE])
            except BlockingIOError:
                break
            except BrokenPipeError:
                self._unsent.clear()  # the process has exited, and `_died` handles the exit
                break
            del self._unsent[:written]
        if self._unsent and self._writing is None:
            self._writing = self._reactor.watch(self._to, self._writable, writable=True)
        elif not self._unsent and self._writing is not None:
            self._writing.close()
            self._writing = None

    def _writable(self, fd: int, now: float) -> News:
        self._write()
        return None

    def _readable(self, fd: int, now: float) -> News:
        """Read messages from the client process. Kill the process if a message is malformed or too long."""
        try:
            data = os.read(fd, _BITE)
        except BlockingIOError:
            return None
        if not data:
            self._reading.close()
            return None
        self._unread += data
        news: list[Any] = []
        while (end := self._unread.find(b"\n")) >= 0:
            line = bytes(self._unread[:end])
            del self._unread[: end + 1]
            try:
                message = json_as(line, FromClient, most_bytes=MOST_LINE_BYTES)
            except Malformed:
                self._child.kill()
                return news
            news += self._heard(message, now) or ()
        if len(self._unread) > MOST_LINE_BYTES:
            self._child.kill()
        return news

    def _died(self, fd: int, now: float) -> News:
        self._release()
        self._over.close()
        self._child.reap()
        return self._ended(now)

    def _release(self) -> None:
        self._reading.close()
        if self._writing is not None:
            self._writing.close()
        for fd in (self._from, self._to):
            os.close(fd)
