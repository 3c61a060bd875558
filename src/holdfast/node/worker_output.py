"""Shows the output of a node's workers. It also watches the guard and the outer process: if one of them ends, the job
is stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from holdfast.act.guard import WORD
from holdfast.explain import first_hand, speaks_of_peers
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.launch.worker_output_options import shown
from holdfast.launch.worker_program import plain_name
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.exit_report import WorkerExit
from holdfast.model.job_spec import Placement
from holdfast.model.phrases import Phrase
from holdfast.node import rare_parts
from holdfast.node.outer_process import OuterWatch
from holdfast.node.worker_context import screens
from holdfast.observe.output_places import OutputPlaces
from holdfast.observe.output_pump import TEMPLATE_VARIABLE, OutputPump, line_prefix
from holdfast.reactor import CallbackPriority, Reactor

_WORDS = 64
_TAKEN_PORT = "ddress already in use"
#: Python's exceptions for a connection that the other side has ended.
_LOST_CONNECTIONS = ("ConnectionResetError", "ConnectionAbortedError", "ConnectionRefusedError", "BrokenPipeError")
#: This many bytes at the end of a dead worker's output are searched for a port in use.
TAIL_BYTES = 4096


class TakenPorts:
    """Finds the process of this job that holds a port which a rank needed. It searches before the other ranks are
    stopped.
    """

    def __init__(self) -> None:
        self._held: tuple[int, str] | None = None

    def died(self, words: str) -> None:
        """Find the process that holds the port, if a dead worker's last lines (`words`) report a port in use."""
        if _TAKEN_PORT in words and self._held is None:
            self._held = rare_parts.missing_resources.descendant_with_port(words)

    def take(self) -> tuple[int, str] | None:
        """Return the first reported port and a description of the process that holds it, or None. Forget both, because
        the next attempt follows.
        """
        held, self._held = self._held, None
        return held


class WorkerOutput:
    """Decides which of a worker's streams the terminal shows, and with which prefix.

    `out`: the terminal, and the process that writes the log files.
    """

    def __init__(self, launch: LaunchSpec, reactor: Reactor, out: OutputPlaces, *, keeps_logs: bool) -> None:
        """`keeps_logs`: whether log files get the workers' output. Without them only the terminal gets it, so no output
        is folded.
        """
        world_size, rotation = launch.spec.world_size, launch.rotation
        folds = world_size > 1 and keeps_logs and launch.settings.flag("fold")
        lost_peer = _lost_peer if folds else None
        self._folds = folds
        self.pump = OutputPump(reactor, out, world_size, rotation, lost_peer)
        self._launch = launch
        self._screens = screens(launch)
        self.taken_ports = TakenPorts()

    def add(self, placement: Placement, stdout_fd: int, stderr_fd: int, directory: Path) -> None:
        """Show a worker's output. `stdout_fd`, `stderr_fd`: the read ends of its pipes. `directory`: for its log
        files.
        """
        launch = self._launch
        out, err = shown(launch.redirects, launch.tee, placement.local_rank)
        visible = launch.shown_ranks is None or placement.local_rank in launch.shown_ranks
        self.pump.add(
            placement.rank,
            placement.role,
            stdout_fd,
            stderr_fd,
            directory,
            show_stdout=out and visible,
            show_stderr=err and visible,
            prefix=self._prefix(placement, directory),
        )

    def _prefix(self, placement: Placement, directory: Path) -> str:
        """Return the prefix of a worker's lines. For a worker that writes directly to the terminal return "", unless
        the user set a template.
        """
        environment = self._launch.environment
        if TEMPLATE_VARIABLE not in environment and any(screen is not None for screen in self._screens):
            return ""
        fields = self._fields(placement, directory)
        # The node may have its own name for the role (`--role`); the prefix uses it.
        label = plain_name(fields.get("role_name", ""), placement.role)
        return line_prefix(label, placement.rank, placement.local_rank, environment, fields)

    def _fields(self, placement: Placement, directory: Path) -> dict[str, str]:
        """Return the values of the fields that a prefix template may have, such as `job` and `attempt`."""
        spec = self._launch.spec
        role = next(role for role in spec.roles if role.name == placement.role)
        fields = {
            "role_rank": str(placement.role_rank),
            "world_size": str(spec.world_size),
            "job": spec.name,
            "attempt": directory.parent.name.removeprefix("attempt-"),
        }
        return fields | ({"role_name": role.env["ROLE_NAME"]} if "ROLE_NAME" in role.env else {})

    def finish(self, rank: int, now: float) -> None:
        self.pump.finish(rank, now)

    def drain(self, rank: int, now: float) -> None:
        self.pump.drain(rank, now)
        self.taken_ports.died(self.pump.tail(rank, TAIL_BYTES))

    def ended(self, ended: WorkerExit, now: float) -> None:
        if self._folds and not ended.ok and first_hand(ended):
            self.pump.lose(f"the exit of rank {ended.rank}", ended.rank, now)
        self.pump.close_ended(ended.rank, now)

    def stopping(self, reason: str, now: float) -> None:
        # A stop's reason may name a failed rank of another node: `worker rank 1 (pid 7) on gpu-1: SIGKILL`.
        match reason.split(" ", 3):
            case [_, "rank", rank, _] if rank.isdecimal():
                self.pump.lose(f"the exit of rank {rank}", int(rank), now)
            case _:
                self.pump.lose("the stop", None, now)

    def tail(self, rank: int, limit_bytes: int) -> str:
        return self.pump.tail(rank, limit_bytes)

    def tail_stream(self, rank: int) -> str:
        return self.pump.tail_stream(rank)

    def hush(self, rank: int) -> None:
        self.pump.hush(rank)


def _lost_peer(exception: str) -> bool:
    return exception.startswith(_LOST_CONNECTIONS) or speaks_of_peers(exception)


def watch_above(
    guard_fd: int,
    outer: str | None,
    reactor: Reactor,
    heard: Callable[[int, bool, float], list[ev.Event]],
    say: Callable[[str], None],
) -> None:
    """Watch the guard's signals and the guard's exit, and the exit of the outer process if there is one. `guard_fd`:
    the guard's pipe. `outer`: the outer process's pid, or its FIFO; None: there is none. `heard(number, typed, now)`:
    returns the events that follow from a signal. `say`: prints a message.
    """
    GuardWatch(guard_fd, reactor, heard)
    if outer is not None:
        OuterWatch(outer, reactor, say)


class GuardWatch:
    """Reads the guard's pipe: the signals that the guard received, and the end of the stream.

    The end means that the guard is dead. The whole job must then end, because the user started the guard.
    """

    def __init__(self, fd: int, reactor: Reactor, heard: Callable[[int, bool, float], list[ev.Event]]) -> None:
        """Watch the pipe `fd`. `heard(number, typed, now)`: returns the events that follow from a signal. `typed`: the
        user typed it at the terminal.
        """
        self._heard = heard
        self._watch = reactor.watch(fd, self._ready, turn=CallbackPriority.GUARD)

    def _ready(self, fd: int, now: float) -> list[ev.Event]:
        if told := os.read(fd, _WORDS * WORD):
            words = (told[at : at + WORD] for at in range(0, len(told), WORD))
            return [event for number, typed in words for event in self._heard(number, bool(typed), now)]
        self._watch.close()
        return guard_is_dead(now)


def guard_is_dead(now: float) -> list[ev.Event]:
    """Return a request to stop the job, because the guard is dead."""
    request = StopRequest(
        reason="the `holdfast run` process was killed from outside (SIGKILL, or the memory killer)",
        solution="Find out who sent the signal (the kernel log names memory kills: dmesg -T | grep -i kill), "
        "then start the job again.",
        source=StopSource.SUPERVISOR,
        phrase=Phrase.KILLED_BY_SIGNAL,
        at=now,
        signal=int(signal.SIGKILL),
        grace_s=0.0,
    )
    return [ev.StopRequested(request=request)]
