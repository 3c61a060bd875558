"""Runs holdfast commands on this node for users on other nodes. Each runs in its own process with a time limit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast import children
from holdfast.import_path import module_command

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, Reactor
    from holdfast.wire.node_messages import Verb

VERB_S = 20.0
SIDE_BY_SIDE = 4
MOST_WAITING = 64
MOST_OUTPUT_BYTES = 512 * 1024

#: A callback. Its arguments: whether the command succeeded, and the command's output.
Done = Callable[[bool, str], None]


class _Running(msgspec.Struct):
    child: children.Child
    output: int
    done: Done
    late: DueCall | None = None


class VerbRunner:
    """Runs commands, at most `SIDE_BY_SIDE` at a time.

    `home`: the state directory that the commands read. `environment`: the commands' environment variables.
    """

    def __init__(self, reactor: Reactor, home: Path, environment: Mapping[str, str]) -> None:
        self._reactor = reactor
        self._environment = {**environment, "HOLDFAST_HOME": str(home), "NO_COLOR": "1"}
        self._waiting: deque[tuple[list[str], Done]] = deque()
        self._running: dict[int, _Running] = {}

    def run(self, verb: Verb, words: Sequence[str], done: Done) -> None:
        """Run the command when fewer than `SIDE_BY_SIDE` commands run. `done` is called once, even if the command
        cannot run, but not after `close`.
        """
        if len(self._waiting) >= MOST_WAITING:
            done(False, f"{MOST_WAITING} commands wait already on {os.uname().nodename}: try again")
            return
        self._waiting.append(([*module_command("holdfast", *verb.value.split(), *words)], done))
        self._fill()

    def close(self) -> None:
        """Kill the running commands without an answer."""
        self._waiting.clear()
        for running in self._running.values():
            self._release(running)
            running.child.end()
        self._running.clear()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < SIDE_BY_SIDE:
            command, done = self._waiting.popleft()
            output = os.memfd_create("verb", os.MFD_CLOEXEC)
            try:
                child = children.start(command, output=output, errors=output, env=self._environment)
            except OSError as error:
                os.close(output)
                done(False, f"no process could be made on {os.uname().nodename}: {error.strerror}")
                continue
            running = self._running[child.pidfd] = _Running(child, output, done)
            running.late = self._reactor.at(self._reactor.now() + VERB_S, partial(self._too_late, running))
            self._reactor.watch(child.pidfd, partial(self._ended, running))

    def _ended(self, running: _Running, fd: int, now: float) -> None:
        del self._running[fd]
        text = os.pread(running.output, MOST_OUTPUT_BYTES, 0).decode("utf-8", "replace")
        self._release(running)
        status = running.child.reap()
        running.done(status == 0, text)
        self._fill()

    def _too_late(self, running: _Running, now: float) -> None:
        del self._running[running.child.pidfd]
        self._release(running)
        running.child.end()
        running.done(False, f"the command did not end within {VERB_S:g} s on {os.uname().nodename}")
        self._fill()

    def _release(self, running: _Running) -> None:
        if running.late is not None:
            running.late.close()
        self._reactor.forget(running.child.pidfd)
        os.close(running.output)
