"""Run a Slurm command and block until its result or its time limit, for processes that have nothing else to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from holdfast.children import start
from holdfast.clock import Clock
from holdfast.platforms.slurm.slurm_commands import LIMIT_S, CommandOutput, SlurmCommands, meant, program
from holdfast.reactor import Reactor


def query(
    words: Sequence[str], *, limit_s: float = LIMIT_S, environment: Mapping[str, str] | None = None
) -> CommandOutput:
    """Run a Slurm command and return its output.

    `words`: the command line. `limit_s`: time limit in seconds.
    `environment`: the command's environment. None: this process's environment, without variables that would change
        the output.
    """
    reactor = Reactor(Clock().now)
    asking = SlurmCommands(reactor)
    if environment is not None:
        asking.environment = dict(environment)
    answers: list[CommandOutput] = []
    try:
        asking.ask(words, lambda answer, now: answers.append(answer), limit_s=limit_s)
        while not answers:
            reactor.wait()
    finally:
        asking.close()
        reactor.close()
    return answers[0]


def run_to_end(
    words: Sequence[str], environment: Mapping[str, str], first_line: Callable[[str], None]
) -> tuple[int, str]:
    """Run a command without a time limit. Return its exit status and its standard error.

    `first_line` is called with the first line of output as soon as it arrives. Raises OSError if the command cannot be
    started. An interrupt kills the command.
    """
    reactor = Reactor(Clock().now)
    pipes = [*os.pipe(), *os.pipe()]
    try:
        command = [program(words[0], environment), *words[1:]]
        child = start(command, output=pipes[1], errors=pipes[3], env=environment)
    except OSError:
        for fd in pipes:
            os.close(fd)
        raise
    out, _, err, _ = pipes
    os.close(pipes[1])
    os.close(pipes[3])
    printed: dict[int, bytes] = {out: b"", err: b""}
    told = False
    over = False

    def readable(fd: int, now: float) -> None:
        nonlocal told
        data = os.read(fd, 65536)
        if not data:
            reactor.forget(fd)
        printed[fd] = (printed[fd] + data)[-65536:]
        if fd == out and not told and b"\n" in printed[out]:
            told = True
            first_line(printed[out].partition(b"\n")[0].decode(errors="replace"))

    def ended(fd: int, now: float) -> None:
        nonlocal over
        over = True
        reactor.forget(fd)

    try:
        for fd in (out, err):
            reactor.watch(fd, readable)
        reactor.watch(child.pidfd, ended)
        while not over:
            reactor.wait()
        for fd in (out, err):
            os.set_blocking(fd, False)
            try:
                readable(fd, 0.0)
            except BlockingIOError:
                continue  # the pipe is empty
        status = child.reap()
    except BaseException:
        child.end()
        raise
    finally:
        reactor.close()
        os.close(out)
        os.close(err)
    return status if status is not None else 1, printed[err].decode(errors="replace")


def trouble_of(words: Sequence[str], status: int, err: str) -> CommandOutput:
    """Classify the exit of a command that `run_to_end` has run."""
    trouble, said = meant(words, status, err, 0.0)
    return CommandOutput(words=tuple(words), err=err, status=status, trouble=trouble, said=said)
