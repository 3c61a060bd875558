"""Run one `srun` that starts agents.

The agents' settings go to srun's standard input. srun's standard error is parsed and passed on.
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
#: How long a line from srun is held back, in seconds. If srun exits meanwhile, one sentence about the failure replaces
#: the line.
HOLD_S = 0.5


class Steps(msgspec.Struct, frozen=True):
    """The settings that all srun steps of a job share.

    `order(address, port)`: returns the settings for each agent, as one line of bytes. The arguments are the owner's.
    """

    job: str
    nodes: tuple[str, ...]
    order: Callable[[str, int], bytes]
    environment: Mapping[str, str]
    python: str
    #: Descriptor that receives the workers' output.
    output: int
    #: GPUs per node that each step requests. 0: the step requests none and gets the job's GPUs.
    gpus: int = 0


class StepObserver(Protocol):
    """Receives the messages and the end of an srun step."""

    def told(self, line: str) -> bool:
        """Handle a line that srun itself printed. Return whether to show the line to the user."""
        ...

    def stepd_said(self, node: str, words: str) -> None:
        """Handle a message from slurmstepd about the task on a node."""
        ...

    def ended(self, step: AgentStep, status: int | None) -> None:
        """Handle srun's exit.

        `status`: exit status, or minus the signal number; None if another part of the process reaped srun.
        """
        ...


class AgentStep:
    """One srun process with its streams."""

    def __init__(
        self, steps: Steps, order: bytes, reactor: Reactor, hears: StepObserver, only: tuple[str, ...]
    ) -> None:
        """Prepare the step. `begin` starts srun.

        `steps`: the settings that all steps share.
        `order`: the agents' settings, as bytes for srun's standard input.
        `hears`: the observer of the step's messages and end.
        `only`: names of the nodes on which agents start; empty: all nodes of the job.
        """
        self.steps = steps
        #: Nodes on which the step starts agents; empty means all nodes of the job.
        self.only = only
        #: Whether srun has printed a message about a task, such as `Killed`.
        self.told_of_tasks = False
        #: The last lines that srun itself has printed.
        self.lines: list[str] = []
        self._reactor = reactor
        self._hears = hears
        self._line = bytearray()
        #: Whether the current line comes from a worker. If so, the rest of the line is passed on unparsed.
        self._passing = False
        #: Lines from srun itself that are written to standard error after `HOLD_S`.
        self._held = bytearray()
        self._flush: DueCall | None = None
        self._child: Child | None = None
        self._writer = -1
        self._unsent = order

    def begin(self) -> None:
        """Start srun and send it the agents' settings. Raises OSError if srun cannot be started."""
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
            self._unsent = b""  # srun has exited, and `_ended` handles the exit
        if not self._unsent and self._sending is not None:
            self._sending.close()
            self._sending = None

    def _read(self, fd: int, now: float) -> None:
        data = os.read(fd, _BLOCK)
        if not data:
            self._reading.close()
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Copy data from srun's stderr to this process's stderr. Lines that srun itself printed are parsed first."""
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
        """Handle one line that srun or slurmstepd itself printed, not a worker."""
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
        """Handle srun's exit: read the rest of its messages, reap it, and report to the observer."""
        assert self._child is not None, "it was watched"
        self._reactor.forget(fd)
        # Do not block: processes that srun has left behind may keep the pipe open.
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
        """Close srun's standard input, because the job has ended.

        Agents that have not started will then never start.
        """
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
        """Kill srun, because the job has ended or this process exits."""
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
            return  # the reader of standard error has exited
