"""A simulated platform: it ends runs of the job, by itself or on request, and starts the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.model import events as ev
from holdfast.model.actions import Requeue
from holdfast_testing.simulated_world import Violation, World

if TYPE_CHECKING:
    from holdfast.model.decisions import JobReport
    from holdfast.model.job_spec import NodeInfo
    from holdfast_testing.simulated_node import Machine
    from holdfast_testing.witness import Witness

ANSWER_S = 0.05
LATE_S = 0.3


class Host(Protocol):
    """The parts of the owner's machine that the platform uses."""

    finished: JobReport | None
    witness: Witness

    def take(self, event: ev.Event) -> None: ...

    def end_run(self) -> None: ...

    def resume(self, run: int, nodes: tuple[NodeInfo, ...]) -> None: ...

    def hello_of_before(self, joined: ev.NodeJoined, run: int) -> None: ...


class SimulatedPlatform:
    """The platform of the one job. The end of a run ends all its processes, including the owner.

    `world`: the simulated world. `machines`: the nodes by name. `host`: the owner's machine.
    """

    def __init__(self, world: World, machines: dict[str, Machine], host: Host) -> None:
        self.world = world
        self.machines = machines
        self.host = host
        self.run = 0
        self.began_at = 0.0
        self.asked: Requeue | None = None
        #: Whether a run has ended and the next has not begun.
        self.between = False

    def requeue(self, action: Requeue) -> None:
        """Handle the owner's request for another run."""
        plan, spec = self.world.plan.platform, self.world.plan.spec.requeue
        if not spec.possible:
            raise Violation("requeue", "the platform may not start the job again, and is asked to")
        if self.asked is not None and self.asked.reason != action.reason:
            raise Violation("requeue", f"it is asked for another run: {self.asked.reason}; and again: {action.reason}")
        for at, request in self.world.plan.stops:
            if request.requeue and action.reason.endswith(request.reason) and at < self.began_at:
                raise Violation("requeue", f"run {self.run} asks for another one, for what had ended an older run")
        if self.asked is None:
            self.asked = action
            if plan is None or plan.refuses:
                self.world.after(ANSWER_S, self._refuse, action)
            else:
                self.world.after(plan.kill_s, self._end, self.run, action.without)

    def _refuse(self, action: Requeue) -> None:
        self.host.take(ev.RequeueRefused(run=action.run, reason="the simulated platform does not want to"))

    def end_by_itself(self) -> None:
        self._end(self.run, ())

    def _end(self, run: int, without: tuple[str, ...]) -> None:
        plan = self.world.plan.platform
        if run != self.run or self.between or self.host.finished is not None or plan is None:
            return
        self.world.say("platform", f"ends run {run}")
        self.run += 1
        self.between = True
        self.host.end_run()
        for machine in self.machines.values():
            machine.taken_away()
        self.world.after(plan.away_s, self._start, without if plan.fewer else ())

    def _start(self, without: tuple[str, ...]) -> None:
        self.world.say("platform", f"starts run {self.run}")
        self.asked, self.began_at = None, self.world.now
        self.between = False
        given = [machine for machine in self.machines.values() if machine.name not in without]
        nodes = () if self.world.plan.joins else tuple(machine.node for machine in given)
        for machine in given:
            machine.given_again()
        gone = [machine for machine in self.machines.values() if not machine.ours]
        self.host.witness.seating.not_ours = {machine.name for machine in gone}
        self.host.resume(self.run, nodes)
        for machine in gone if self.world.plan.joins else ():
            # The agent's connection was cut, so nothing could end the agent. Now the connection is back, and the agent
            # still dials.
            late = ev.NodeJoined(node=machine.node, boot=machine.boot)
            self.world.after(LATE_S, self.host.hello_of_before, late, self.run)
