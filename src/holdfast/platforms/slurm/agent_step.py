"""One `srun` that starts agents.

It gets the agents' order on standard input; its standard error is parsed and passed on.
"""

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
#: How long a line of srun's is held back, in seconds. If srun exits meanwhile, one sentence explains the failure
#: instead.
HOLD_S = 0.5


class Steps(msgspec.Struct, frozen=True):
    """The settings that all steps of a job share.

    `order(address, port)`: the bytes sent to each agent, with a line end.
    """

    job: str
    nodes: tuple[str, ...]
    order: Callable[[str, int], bytes]
    environment: Mapping[str, str]
    python: str
    #: Descriptor for the workers' output.
    output: int
    #: GPUs per node to request for the step; 0: request none, and get the job's.
    gpus: int = 0


class StepObserver(Protocol):
    """Receives a step's messages and its end."""

    def told(self, line: str) -> bool:
        """Handle a line that srun itself has printed. Return whether to show it."""
        ...

    def stepd_said(self, node: str, words: str) -> None:
        """slurmstepd has printed a message about the task on a node."""
        ...

    def ended(self, step: AgentStep, status: int | None) -> None:
        """srun has exited. `status`: exit status, or minus the signal; None: another part of the process reaped it."""
        ...


class AgentStep:
    """One srun process and its streams."""

    def __init__(
        self, steps: Steps, order: bytes, reactor: Reactor, hears: StepObserver, only: tuple[str, ...]
    ) -> None:
        """Prepare the step; `begin` starts srun.

        `steps`: common settings. `order`: bytes for the agents. `hears`: the observer. `only`: nodes to use; empty:
        all.
        """
        self.steps = steps
        #: Nodes of the job to start agents on; empty: all.
        self.only = only
        #: srun has printed a message about tasks.
        self.told_of_tasks = False
        #: The last lines that srun itself printed.
        self.lines: list[str] = []
        self._reactor = reactor
        self._hears = hears
        self._line = bytearray()
        #: The current line is not srun's own: pass its rest on unread.
        self._passing = False
        #: Lines of srun's to be shown after `HOLD_S`.
        self._held = bytearray()
        self._flush: DueCall | None = None
        self._child: Child | None = None
        self._writer = -1
        self._unsent = order

    def begin(self) -> None:
        """Start srun and send it the order. Raises OSError if it cannot be run."""
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
            self._unsent = b""  # srun has exited; `_ended` handles that
        if not self._unsent and self._sending is not None:
            self._sending.close()
            self._sending = None

    def _read(self, fd: int, now: float) -> None:
        data = os.read(fd, _BLOCK)
        if not data:
            self._reading.close()
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Pass data on to standard error. srun's own lines are parsed first."""
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
        """Handle one line of srun or slurmstepd."""
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
        """srun has exited: read the rest of its messages, reap it, and report to the observer."""
        assert self._child is not None, "it was watched"
        self._reactor.forget(fd)
        # Read the rest without blocking: processes that srun left behind may keep the pipe open.
        os.set_blocking(self._errors, False)
        try:
            while data := os.read(self._errors, _BLOCK):
                self._take(data)
        except BlockingIOError:
            pass  # the pipe is empty
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
        """Close srun's standard input, because the job is over. Agents that have not started yet never will."""
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
        """Kill srun: the job is over, or this process exits."""
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
            return  # the reader is gone
