"""What a run waits for besides its workers: the control socket and the guard; and how workers' output is shown."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.act.guard import WORD
from holdfast.loop.order import Launch
from holdfast.loop.workplace import screens
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.jobs import Seat
from holdfast.observe.output import TEMPLATE_VARIABLE, Pump, line_prefix
from holdfast.observe.std import shown
from holdfast.plain import one_line
from holdfast.reactor import Reactor, Turn

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.decide.gang import Gang
    from holdfast.loop.control import Control, Line, Reply

_WORDS = 64


class WorkerOutput:
    """The platform's view of the pump: which of a worker's streams are shown, under which prefix."""

    def __init__(self, pump: Pump, launch: Launch) -> None:
        self._pump = pump
        self._launch = launch
        self._screens = screens(launch)

    def add(self, seat: Seat, stdout_fd: int, stderr_fd: int, directory: Path) -> None:
        launch = self._launch
        out, err = shown(launch.redirects, launch.tee, seat.local_rank)
        visible = launch.shown_ranks is None or seat.local_rank in launch.shown_ranks
        self._pump.add(
            seat.rank,
            seat.role,
            stdout_fd,
            stderr_fd,
            directory,
            show_stdout=out and visible,
            show_stderr=err and visible,
            prefix=self._prefix(seat, directory),
        )

    def _prefix(self, seat: Seat, directory: Path) -> str:
        """None for a worker that has a terminal to itself, unless a template asks for one."""
        environment = self._launch.environment
        if TEMPLATE_VARIABLE not in environment and any(screen is not None for screen in self._screens):
            return ""
        return line_prefix(seat.role, seat.rank, seat.local_rank, environment, self._fields(seat, directory))

    def _fields(self, seat: Seat, directory: Path) -> dict[str, str]:
        """What else a prefix may name."""
        spec = self._launch.spec
        role = next(role for role in spec.roles if role.name == seat.role)
        fields = {
            "role_rank": str(seat.role_rank),
            "world_size": str(spec.world_size),
            "job": spec.name,
            "attempt": directory.parent.name.removeprefix("attempt-"),
        }
        return fields | ({"role_name": role.env["ROLE_NAME"]} if "ROLE_NAME" in role.env else {})

    def finish(self, rank: int, now: float) -> None:
        self._pump.finish(rank, now)

    def tail(self, rank: int) -> str:
        return self._pump.tail(rank)

    def tail_stream(self, rank: int) -> str:
        return self._pump.tail_stream(rank)

    def hush(self, rank: int) -> None:
        self._pump.hush(rank)


class Door:
    """Other holdfast commands, through the control socket.

    It opens a moment after the start: nobody can have typed anything before, and what it imports would hold back the
    workers' first lines, or take the cores that their own start needs.
    """

    OPENS_S = 0.05

    def __init__(
        self,
        make: Callable[[Door], Control | None],
        reactor: Reactor,
        post: Callable[[ev.Event], None],
        gang: Gang,
        refresh_faults: Callable[[float], list[ev.Event]],
        catalogue: Catalogue | None,
    ) -> None:
        self._make = make
        self._post = post
        self._now = reactor.now
        self._gang = gang
        self._refresh_faults = refresh_faults
        self._catalogue = catalogue
        self._control: Control | None = None
        self._opening = reactor.at(self._now() + self.OPENS_S, self._open)

    def _open(self, now: float) -> None:
        self._control = self._make(self)

    def take(self, line: Line) -> Reply:
        from holdfast.loop.control import Reply
        from holdfast.loop.devices.notice import FaultsLine
        from holdfast.loop.orders import request_of

        if isinstance(line, FaultsLine):
            for event in self._refresh_faults(self._now()):
                self._post(event)
            return Reply(True, "the fault log was read")
        if not one_line(line.reason).strip():
            return Reply(False, "a reason is needed: holdfast stop JOB --reason TEXT")
        try:
            request = request_of(line, self._catalogue, self._now())
        except ValueError as error:
            return Reply(False, str(error))
        self._post(ev.StopRequested(request=request))
        grace_s = self._gang.spec.timers.grace_s
        later = f"and SIGKILL if they still run {grace_s:g} s later" if grace_s else "and SIGKILL at once"
        return Reply(True, f"its workers get SIGTERM now, {later}")

    def close(self) -> None:
        self._opening.close()
        if self._control is not None:
            self._control.close()


class GuardWatch:
    """The guard's pipe: the signals that it got, and its end.

    The end means that the process the user typed is dead, and so must everything be.
    """

    def __init__(self, fd: int, reactor: Reactor, heard: Callable[[int, bool, float], list[ev.Event]]) -> None:
        """`heard(number, typed, now)`: what follows from a signal; `typed`: at a terminal."""
        self._heard = heard
        self._watch = reactor.watch(fd, self._ready, turn=Turn.GUARD)

    def _ready(self, fd: int, now: float) -> list[ev.Event]:
        if told := os.read(fd, _WORDS * WORD):
            words = (told[at : at + WORD] for at in range(0, len(told), WORD))
            return [event for number, typed in words for event in self._heard(number, bool(typed), now)]
        self._watch.close()
        request = StopRequest(
            reason="the `holdfast run` process was killed from outside (SIGKILL, or the memory killer)",
            solution="Find out who sent the signal (the kernel log names memory kills: dmesg -T | grep -i kill), "
            "then start the job again.",
            source=StopSource.SUPERVISOR,
            phrase="KilledBySignal",
            at=now,
            signal=int(signal.SIGKILL),
            grace_s=0.0,
        )
        return [ev.StopRequested(request=request)]
