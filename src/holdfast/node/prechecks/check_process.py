"""The supervisor's end of one check's process: a pidfd and two pipes to wait on, and a method to kill the process."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.act.isolated_fork import forked
from holdfast.check_registry import CheckRef, Profile
from holdfast.errors import BadUsage
from holdfast.model.check_results import CheckOutcome, Finding, Site
from holdfast.model.job_spec import JobSpec
from holdfast.node.prechecks import check_child
from holdfast.untrusted import Malformed, json_as

_ANSWER_BYTES = 1 << 20
_TAIL_BYTES = 2048


class Poller(Protocol):
    """The methods that `select.epoll` and `select.poll` share."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...


class CheckProcess:
    """A check in a forked process, which runs `body`. Call `advance` when `poller` reports one of its descriptors.

    Raises OSError if no process or pipe can be created.
    """

    def __init__(self, body: Callable[[int], None], poller: Poller) -> None:
        self._answer = bytearray()
        #: The last bytes of the process's output.
        self.tail = bytearray()
        self.over = False
        #: The exit status, or the negative signal number; None if another part of this program has reaped the process.
        self.status: int | None = None
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            result_in, result_out, output_in, output_out = pipes
            self._child = forked(lambda: body(result_out), keep=(result_out,), output=output_out)
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        self.pid = self._child.pid
        os.close(result_out)
        os.close(output_out)
        self._result, self._output = result_in, output_in
        os.set_blocking(result_in, False)
        os.set_blocking(output_in, False)
        self._waiting = {result_in, output_in}
        self._poller = poller
        for fd in (self._child.pidfd, result_in, output_in):
            poller.register(fd, select.POLLIN)

    def advance(self) -> None:
        """Read the answers and the output that the check's process has written so far."""
        for fd in (self._result, self._output):
            if fd in self._waiting and not self._read(fd):
                self._release(fd)
        self._look()

    def _release(self, fd: int) -> None:
        # Unregister before closing, because a fork at the same time may keep the descriptor open for a moment.
        self._waiting.discard(fd)
        self._poller.unregister(fd)
        os.close(fd)

    def _read(self, fd: int) -> bool:
        """Read from a pipe. Return False at the end of the stream."""
        # Limit the number of reads, because a check that prints endlessly must not block the loop.
        for _ in range(16):
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            if fd == self._output:
                self.tail += data
                del self.tail[:-_TAIL_BYTES]
            elif len(self._answer) < _ANSWER_BYTES:
                self._answer += data
        return True

    def _look(self) -> None:
        if self.over or not self._child.ended:
            return
        self.over = True
        self._poller.unregister(self._child.pidfd)
        self.status = self._child.reap()
        for fd in (self._result, self._output):
            if fd in self._waiting:
                self._read(fd)

    def take(self) -> list[Finding]:
        """Return the complete answers since the last call, in order, up to the first unreadable one."""
        found: list[Finding] = []
        while (end := self._answer.find(b"\n")) >= 0:
            try:
                found.append(json_as(bytes(self._answer[:end]), Finding))
            except Malformed:
                self._answer.clear()
                break
            del self._answer[: end + 1]
        return found

    @property
    def answer(self) -> bytes:
        """Return the bytes of answers that `take` has not returned."""
        return bytes(self._answer)

    def how(self) -> str:
        """Return how the process ended without a complete answer, with its last output."""
        if self.status is None:
            text = "its process vanished"
        elif self.status >= 0:
            text = f"its process ended with exit status {self.status} and no answer"
        else:
            number = -self.status
            name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
            text = f"its process died of {name}"
        words = self.tail.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        return f"{text}; its last words: {words[:300]}" if words else text

    def died(self, check: str, site: Site) -> Finding:
        """Return the finding about a process that died without an answer: inconclusive, with the cause of the death."""
        return Finding(
            check=check,
            answer=CheckOutcome.INCONCLUSIVE,
            node=site.node,
            nodes=(site.node,),
            message=f"{site.node}: {self.how()}",
            blame="unknown",
        )

    def close(self) -> None:
        """Kill the process with all its children and release it. Wait at most 50 ms, because a process in state D
        cannot die.
        """
        if not self.over:
            self.over = True
            check_child.kill_tree(self.pid)
            self._poller.unregister(self._child.pidfd)
            self._child.end(wait_s=0.05)
        for fd in tuple(self._waiting):
            self._release(fd)


def check_body(
    work: Sequence[tuple[CheckRef, Mapping[str, Any]]],
    *,
    job: JobSpec | None,
    nodes: Sequence[str],
    attempt: int,
    site: Site,
) -> Callable[[int], None]:
    """Return a function that runs these checks in the checks' process. `work`: the checks with their parameters."""

    def body(fd: int) -> None:
        check_child.run(work, job=job, nodes=nodes, attempt=attempt, site=site, fd=fd)

    return body


def describe_in_child(ref: CheckRef, limit_s: float = 15.0) -> list[Profile]:
    """Load the profiles of a plugin's checks (`ref`) in a child process, and return them. The call blocks, so make it
    only before the job starts. Raises BadUsage if the load fails or takes longer than `limit_s`.
    """
    poll = select.poll()
    process = CheckProcess(lambda fd: check_child.describe_in_child(ref, fd), poll)
    try:
        ends = time.monotonic() + limit_s
        while not process.over:
            left_ms = (ends - time.monotonic()) * 1000
            if left_ms <= 0:
                raise BadUsage(
                    f"{ref.source} did not load within {limit_s:g} s; expected a file that only defines checks"
                )
            poll.poll(left_ms)
            process.advance()
        try:
            found = check_child.decode_profiles(process.answer)
        except Malformed:
            raise BadUsage(f"{ref.source} could not be loaded: {process.how()}") from None
    finally:
        process.close()
    if isinstance(found, str):
        raise BadUsage(found)
    return found
