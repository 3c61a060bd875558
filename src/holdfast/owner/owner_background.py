"""The owner's work besides judging: it serves other commands, and warms up for a failure while all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.decide.phases import Phase

if TYPE_CHECKING:
    from holdfast.decide.gang import Gang
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.events import Event
    from holdfast.node.explain_warmup import ExplainWarmup
    from holdfast.owner.control_server import ControlServer
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace

#: Seconds after the start at which the control socket opens. Its imports would delay the workers' first lines, or take
#: cores that their start needs; no user can have typed a command before.
DOOR_OPENS_S = 0.05


class OwnerBackground:
    """Runs the owner's background work.

    `gang`: the job's gang, whose phase shows when all is well. `spare_time`: yields small steps of the nodes' own
    work while all is well. `report` passes other commands' requests to the owner. `read_faults` makes the nodes
    read their fault logs. `say` prints a message.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        place: JobPlace,
        reactor: Reactor,
        gang: Gang,
        spare_time: Callable[[float], Iterator[object]],
        *,
        report: Callable[[Event], None],
        read_faults: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._launch = launch
        self._place = place
        self._reactor = reactor
        self._gang = gang
        self._spare_time = spare_time
        self._report = report
        self._read_faults = read_faults
        self._say = say
        self.door: ControlServer | None = None
        self._rehearsal: ExplainWarmup | None = None
        self._opening = reactor.at(reactor.now() + DOOR_OPENS_S, self._open_door)

    def close(self) -> None:
        self._opening.close()
        if self.door is not None:
            self.door.close()

    def rehearse(self, now: float) -> None:
        """Begin the warm-up: all workers are up."""
        if self._rehearsal is None:
            from holdfast.node.explain_warmup import ExplainWarmup  # imported late, because a start does not need it

            self._rehearsal = ExplainWarmup(lambda: self._gang.phase is Phase.RUNNING, self._spare_time, self._say)
            self._reactor.deadlines(self._rehearsal.next_wake, self._rehearsal.tick)
        self._rehearsal.begin(now)

    def _open_door(self, now: float) -> None:
        from holdfast.owner.control_server import ControlServer  # imported late, because a start does not need it

        self.door = ControlServer(self._reactor, self._place, self._launch, self._report, self._read_faults, self._say)
