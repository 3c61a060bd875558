"""One `srun` that starts agents: it gets the order, and what comes on its standard error is looked at and passed on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from holdfast.children import Child, start
from holdfast.platforms.slurm.text.srun_command import meaning, step_command, word_of_stepd
from holdfast.reactor import DescriptorWatch, DueCall, Reactor

_BLOCK = 64 * 1024
_MOST_LINE = 4096
_LINES = 16
_OWN = (b"srun: ", b"slurmstepd-")
#: How long a line of srun's waits for those that explain it: where srun ends meanwhile, one sentence says why.
HOLD_S = 0.5


class Steps(msgspec.Struct, frozen=True):
    """What the steps of a job have in common. `order(address, port)`: what each agent is sent, with a line end."""

    job: str
    nodes: tuple[str, ...]
    order: Callable[[str, int], bytes]
    environment: Mapping[str, str]
    python: str
    #: Where what workers print goes.
    output: int
    #: GPUs of each node that the step asks for; 0: none are asked for, and it gets those of the job.
    gpus: int = 0


class StepObserver(Protocol):
    """What hears of a step: its lines, its end."""

    def told(self, line: str) -> bool:
        """A line of srun's own. Whether it is shown."""
        ...

    def stepd_said(self, node: str, words: str) -> None:
        """What Slurm says of the task on a node."""
        ...

    def ended(self, step: AgentStep, status: int | None) -> None:
        """srun has ended: its exit status, or minus a signal; None: something else has reaped it."""
        ...


class AgentStep:
    """One srun."""

    def __init__(
        self, steps: Steps, order: bytes, reactor: Reactor, hears: StepObserver, only: tuple[str, ...]
    ) -> None:
        self.steps = steps
        self.only = only
        """Some nodes of the job; empty: all."""
        self.told_of_tasks = False
        self.lines: list[str] = []
        """srun's own, the last ones."""
        self._reactor = reactor
        self._hears = hears
        self._line = bytearray()
        self._passing = False
        """The rest of a line is not srun's own."""
        self._held = bytearray()
        self._flush: DueCall | None = None
        self._child: Child | None = None
        self._writer = -1
        self._unsent = order

    def begin(self) -> None:
        """Start srun, and give it the order. Raises OSError where it cannot be run."""
        steps = self.steps
        command = step_command(steps.job, len(self.only or steps.nodes), steps.python, only=self.only, gpus=steps.gpus)
        reader, self._writer = os.pipe()
        self._errors, errors = os.pipe()
        try:
            self._child = start(command, output=steps.output, errors=errors, given=reader, env=steps.environment)
        except OSError:
            for fd in (self._writer, self._errors):
                os.close(fd)
            raise
        finally:
            os.close(reader)
            os.close(errors)
        os.set_blocking(self._writer, False)
        self._sending: DescriptorWatch | None = self._reactor.watch(self._writer, self._send, writable=True)
        self._reading = self._reactor.watch(self._errors, self._read)
        self._reactor.watch(self._child.pidfd, self._ended)

    def _send(self, fd: int, now: float) -> None:
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # srun has ended, which its pidfd tells
        if not self._unsent and self._sending is not None:
            self._sending.close()
            self._sending = None

    def _read(self, fd: int, now: float) -> None:
        data = os.read(fd, _BLOCK)
        if not data:
            self._reading.close()
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Pass on what came; a line of srun's own is looked at first."""
        shown = bytearray()
        *ended, rest = data.split(b"\n")
        for part in (*(line + b"\n" for line in ended), rest):
            if self._passing:
                shown += part
                self._passing = not part.endswith(b"\n")
                continue
            self._line += part
            if any(own.startswith(self._line[: len(own)]) for own in _OWN):
                if part.endswith(b"\n") or len(self._line) > _MOST_LINE:
                    self._line_of_srun()
            else:
                shown += self._line
                self._passing = not part.endswith(b"\n")
                self._line.clear()
        _write(bytes(shown))

    def _line_of_srun(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        text = line.decode("utf-8", "replace").rstrip("\n")
        if (word := word_of_stepd(text)) is not None:
            self._hears.stepd_said(*word)
            _write(line)
            return
        self.lines = [*self.lines[1 - _LINES :], text]
        self.told_of_tasks = self.told_of_tasks or meaning(text) is not None
        if self._hears.told(text):
            self._held += line
            if self._flush is None:
                self._flush = self._reactor.at(self._reactor.now() + HOLD_S, self._show)

    def _show(self, now: float) -> None:
        self._flush = None
        _write(bytes(self._held))
        self._held.clear()

    def _ended(self, fd: int, now: float) -> None:
        assert self._child is not None, "it was watched"
        self._reactor.forget(fd)
        # What the pipe still holds was written before the end; what srun has left behind may keep it open.
        os.set_blocking(self._errors, False)
        try:
            while data := os.read(self._errors, _BLOCK):
                self._take(data)
        except BlockingIOError:
            pass  # all that there is
        _write(bytes(self._line))
        if self._flush is not None:
            self._flush.close()
        if self.told_of_tasks:
            self._show(now)
        status = self._child.reap()
        self._child = None
        self._close_pipes()
        self._hears.ended(self, status)

    def hang_up(self) -> None:
        """The job is over: an agent that has not begun will not."""
        if self._sending is not None:
            self._sending.close()
            self._sending = None
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def _close_pipes(self) -> None:
        self.hang_up()
        self._reading.close()
        os.close(self._errors)

    def close(self) -> None:
        """The job is over, or this process is to end."""
        if self._child is not None:
            self._reactor.forget(self._child.pidfd)
            self._child.end()
            self._child = None
            self._close_pipes()


def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return  # there is no reader any more
