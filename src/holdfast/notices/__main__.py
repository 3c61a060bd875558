"""The program `python -m holdfast.notices` reads notices from standard input and sends them to people and programs.

There are several ways of sending: a user's command, messages, the summary, the trace. Each has a bounded queue that
runs one process at a time with a time limit. When the input ends, all queues together get that time limit to finish.
"""

from __future__ import annotations

import os

from holdfast.act.linux import become_subreaper, descendants, name_process
from holdfast.act.termination import kill
from holdfast.clock import Clock
from holdfast.model.codec import encode
from holdfast.model.notice_messages import Beginning, Notice, NoticeKind
from holdfast.notices.message_limits import Messages
from holdfast.notices.send_queue import SendQueue, ours
from holdfast.reactor import Reactor
from holdfast.untrusted import Malformed, json_as

_READ = 1 << 16
_MOST_BYTES = 64 << 20


class NoticeProcess:
    """The process that sends the notices of one job, with its queues.

    `begin`: the first line of the input, which names the job and the ways to send notices.
    """

    def __init__(self, begin: Beginning, reactor: Reactor) -> None:
        self.plan = plan = begin.plan
        self._begin = begin
        self.queues: list[SendQueue] = []
        self._events = self._queue("--on-event", plan.on_event)
        self._end = self._queue("--on-end", plan.on_end)
        self._summary = self._queue("--summary", plan.summary)
        self._traces = self._queue("--traces", "yes" if plan.traces else "")
        self._messages: Messages | None = None
        self._reactor = reactor
        if plan.notify:
            queue = self._queue("--notify", "yes")
            assert queue is not None
            self._messages = Messages(plan.notify, begin, queue)
        for queue in self.queues:
            queue.join(reactor)

    def _queue(self, name: str, asked: str) -> SendQueue | None:
        if not asked:
            return None
        queue = SendQueue(name, self.plan.limit_s, _say)
        self.queues.append(queue)
        return queue

    def tell(self, notice: Notice) -> None:
        data, variables = encode(notice.body), {**self._variables(notice), **notice.variables}
        last = notice.kind is NoticeKind.JOB_ENDED
        if self._events is not None:
            self._events.add(("/bin/sh", "-c", self.plan.on_event), data, variables)
        if self._end is not None and last:
            self._end.add(("/bin/sh", "-c", self.plan.on_end), data, variables)
        if self._summary is not None and last:
            self._summary.add(ours("holdfast.notices.markdown_summary", self.plan.summary), data, {})
        if self._traces is not None and last:
            self._traces.add(ours("holdfast.notices.otlp_traces", self._begin.home, self._begin.job), b"", {})
        if self._messages is not None and notice.wakes:
            self._messages.add(notice, last=last)

    def _variables(self, notice: Notice) -> dict[str, str]:
        begin = self._begin
        return {
            "HOLDFAST_EVENT": notice.kind.value,
            "HOLDFAST_JOB": begin.job,
            "HOLDFAST_JOB_NAME": begin.name,
            "HOLDFAST_HOME": begin.home,
        }


def _say(text: str) -> None:
    try:
        os.write(1, text.replace("\n", " ").encode("utf-8", "replace")[:1000] + b"\n")
    except OSError:
        pass  # the run that reads this output has ended


def main() -> None:
    """Run until the input has ended and all messages are sent, or until the time limit."""
    become_subreaper()
    name_process("holdfast notices")
    reactor = Reactor(Clock().now)
    teller: NoticeProcess | None = None
    pending = bytearray()
    open_ = True

    def read(fd: int, now: float) -> None:
        nonlocal teller, open_
        data = os.read(fd, _READ)
        pending.extend(data)
        while (end := pending.find(b"\n")) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            try:
                if teller is None:
                    teller = NoticeProcess(json_as(line, Beginning, most_bytes=_MOST_BYTES), reactor)
                else:
                    teller.tell(json_as(line, Notice, most_bytes=_MOST_BYTES))
            except Malformed as error:
                _say(f"a notice is left out: {error}")
        if not data:
            reactor.forget(0)
            open_ = False

    reactor.watch(0, read)
    while open_:
        reactor.wait()
    queues = teller.queues if teller is not None else []
    until = reactor.now() + (teller.plan.limit_s if teller is not None else 0.0)
    reactor.at(until, lambda now: None)
    while any(queue.busy for queue in queues) and reactor.now() < until:
        reactor.wait()
    for queue in queues:
        queue.close()
    kill(descendants(os.getpid()))


if __name__ == "__main__":
    main()
