"""One simulated node: the real Agent, a clock that drifts, and processes that live and die as the plan says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from holdfast.decide.agent import Agent
from holdfast.model import events as ev
from holdfast.model.evidence import MemoryKill
from holdfast.model.gang_protocol import Command, Report
from holdfast.model.job_spec import NodeInfo
from holdfast.model.process_messages import (
    AllReaped,
    Fact,
    Instruction,
    NotifyWorkers,
    ReleaseWorker,
    SendReport,
    SignalWorkers,
    StartWorker,
    WorkersNotified,
    WorkerStartFailed,
)
from holdfast_testing.simulated_processes import Process, Rooms
from holdfast_testing.simulated_world import Network, Violation, World
from holdfast_testing.trouble_plan import Crash, What

if TYPE_CHECKING:
    from holdfast_testing.witness import Witness

REAP_S = 0.01
REDIAL_S = 1.0


class Machine:
    """A node with its agent. `local(now)` is the time of the agent's clock."""

    def __init__(
        self,
        node: NodeInfo,
        world: World,
        network: Network,
        rooms: Rooms,
        witness: Witness,
        tell: Callable[[Report], None],
        make_agent: Callable[..., Agent] = Agent,
        *,
        dial: Callable[[ev.NodeJoined, Machine], None],
        leave: Callable[[ev.NodeLeft], None],
    ) -> None:
        """Create the node.

        `node`: its description. `world`, `network`, `rooms`, `witness`: the simulation's parts. `tell`: receives its
        reports. `make_agent`: creates an agent. `dial`, `leave`: the owner's reaction to a joining and a leaving agent.
        """
        self.node = node
        self.name = name = node.name
        self.world = world
        self.network = network
        self.rooms = rooms
        self.witness = witness
        self.tell = tell
        self.make_agent = make_agent
        self.dial = dial
        self.say_goodbye = leave
        #: The boot number of the agent that the owner has admitted.
        self.welcome = 0
        self.rate = 1.0 + world.plan.drift.get(name, 0.0)
        self.offset = 1000.0 + 7919.0 * (hash_of(name) % 97)
        self.boot = 0
        self.alive = False
        #: Whether the node belongs to the present run of the job.
        self.ours = True
        self.processes: dict[tuple[int, int], Process] = {}
        self.signalled = -1
        #: Counts the deaths on this node; the counters of nodes begin at different numbers.
        self.order = hash_of(name) % 50
        #: Memory kills in the kernel log as (attempt, kill), with times of this machine's clock.
        self.memory_kills: list[tuple[int, MemoryKill]] = []
        self._wake: float | None = None
        self.agent: Agent
        if not world.plan.joins:
            self.begin()

    # ------------------------------------------------------------------------------------------ the machine's own life

    def begin(self) -> None:
        """Start the agent, or start it again, with a new boot number and without a memory."""
        timers = self.world.plan.spec.timers
        self.boot += 1
        self.alive = True
        self.signalled = -1
        self._wake = None
        lease_s = None if self.world.plan.local else timers.lease_s
        self.agent = self.make_agent(self.name, self.boot, lease_s=lease_s, beat_s=timers.beat_s)
        self.world.say(self.name, f"agent starts, boot {self.boot}")
        if self.world.plan.joins:
            self.hello(self.boot)
        self._arm()

    def hello(self, boot: int) -> None:
        """Dial the owner repeatedly until it has admitted this agent."""
        if self.alive and self.boot == boot and self.welcome < boot:
            self.network.carry(self.name, self._reach, ev.NodeJoined(node=self.node, boot=boot))
            self.world.after(REDIAL_S, self.hello, boot)

    def _reach(self, joined: ev.NodeJoined) -> None:
        # A connection ends together with the process at either end, so no hello arrives late.
        if self.alive and self.boot == joined.boot and self.welcome < joined.boot:
            self.dial(joined, self)

    def welcomed(self, boot: int) -> None:
        self.welcome = max(self.welcome, boot)

    def redial(self) -> None:
        """Let the agent dial again, because a new owner has started and has to admit the agent."""
        self.welcome = 0
        self.hello(self.boot)

    def leave(self) -> None:
        """The node's user ends the agent: all its processes die, and the owner is notified."""
        if self.alive:
            self.world.say(self.name, "is ended by its user")
            self._fall("agent")
            left = ev.NodeLeft(node=self.name, boot=self.boot, reason="its user ended it", fenced=True)
            self.network.carry(self.name, self.say_goodbye, left)

    def lose_agent(self, crash: Crash) -> None:
        """Let the agent die. Its guard kills its processes, and a new agent starts later."""
        if self.alive:
            self.world.say(self.name, "agent dies")
            self._fall("agent")
            self.world.after(crash.away_s, self._return, self.boot)

    def lose_power(self) -> None:
        if self.alive:
            self.world.say(self.name, "power lost")
            self._fall("power")

    def _fall(self, why: str) -> None:
        self.alive = False
        self.witness.node_fell(self.name, why)
        for process in list(self.processes.values()):
            process.vanish(why)
        self.processes.clear()

    def _return(self, boot: int) -> None:
        if not self.alive and self.boot == boot and self.ours:
            self.begin()

    def power_back(self) -> None:
        if not self.alive and self.ours:
            self.begin()

    def taken_away(self) -> None:
        """Cut the node's power, because the run of the job that had this node is over."""
        self.ours = False
        self.lose_power()

    def given_again(self) -> None:
        """Start the node again, for another run of the job."""
        self.ours = True
        self.power_back()

    # ------------------------------------------------------------------------------------------ the agent

    def local(self, now: float) -> float:
        return self.offset + now * self.rate

    def obey(self, command: Command) -> None:
        """Let the agent handle a command that arrives over the network."""
        if self.alive:
            self._perform(self.agent.obey(command, self.local(self.world.now)))

    def learn(self, fact: Fact, boot: int) -> None:
        """Tell the agent a fact about a process. Drop facts that are meant for an earlier agent."""
        if self.alive and boot == self.boot:
            self._perform(self.agent.learn(fact, self.local(self.world.now)))

    def _awake(self, when: float) -> None:
        if self._wake != when or not self.alive:
            return
        self._wake = None
        now, due = self.local(self.world.now), self.agent.next_wake()
        if due is not None and due <= now + 1e-6:
            now = max(now, due)
            self._perform(self.agent.tick(now))
            again = self.agent.next_wake()
            if again is not None and again <= now:
                raise Violation("I6", f"the agent of {self.name} asks to be woken at a moment that has passed")
        self._arm()

    def _arm(self) -> None:
        due = self.agent.next_wake()
        if due is None:
            return
        when = max(self.world.now, (due - self.offset) / self.rate)
        if self._wake is None or when < self._wake:
            self._wake = when
            self.world.at(when, self._awake, when)

    def _perform(self, instructions: list[Instruction]) -> None:
        queue = deque(instructions)
        while queue:
            order = queue.popleft()
            match order:
                case SendReport():
                    self.network.carry(self.name, self.tell, order.report)
                case StartWorker():
                    self._start(order)
                case ReleaseWorker():
                    process = self.processes.get((order.attempt, order.rank))
                    if process is not None:
                        process.release()
                case NotifyWorkers():
                    self.world.after(0.0, self.learn, WorkersNotified(attempt=order.attempt, listening=()), self.boot)
                case SignalWorkers():
                    self._signal(order)
                case _:
                    assert_never(order)
        self._arm()

    # ------------------------------------------------------------------------------------------ processes

    def _start(self, order: StartWorker) -> None:
        placement, attempt, plan = order.placement, order.attempt, self.world.plan
        ill = plan.ills.get((attempt, placement.rank)) or plan.bad_nodes.get(self.name)
        if ill is None and placement.rank == 0:
            ill = plan.bug
        if ill is not None and ill.what is What.NO_START:
            self.witness.fell_ill(attempt, placement, "start")
            self.witness.could_not_start(attempt, placement.rank)
            fact = WorkerStartFailed(attempt=attempt, rank=placement.rank, reason=ill.ending.words)
            self.world.after(0.01, self.learn, fact, self.boot)
            return
        self.world.say(self.name, f"starts rank {placement.rank} of attempt {attempt}")
        self.witness.started(attempt, placement, self.boot)
        self.processes[attempt, placement.rank] = Process(self, attempt, placement, order.shape.world_size, ill)

    def _signal(self, order: SignalWorkers) -> None:
        self.signalled = max(self.signalled, order.attempt)
        how = "SIGKILL" if order.hard else "SIGTERM"
        mine = [process for (attempt, _), process in self.processes.items() if attempt == order.attempt]
        self.witness.signalled(order.attempt, self.name)
        if mine:
            self.world.say(self.name, f"{how} to attempt {order.attempt}: {order.reason}")
        for process in mine:
            process.signal(hard=order.hard)
        self.emptied(order.attempt)

    def killed_for_memory(self, process: Process) -> None:
        self.witness.killed_for_memory(process.attempt, process.placement.rank)
        at = self.local(self.world.now)
        kill = MemoryKill(source="kernel log", text="Killed process", node=self.name, pid=process.pid, at=at)
        self.memory_kills.append((process.attempt, kill))

    def gone(self, process: Process) -> None:
        """Note that a process of this machine has died and been reaped."""
        self.processes.pop((process.attempt, process.placement.rank), None)
        self.emptied(process.attempt)

    def emptied(self, attempt: int) -> None:
        if attempt == self.signalled and not any(mine == attempt for mine, _ in self.processes):
            self.world.after(REAP_S, self.learn, AllReaped(attempt=attempt), self.boot)

    def next_order(self) -> int:
        self.order += 1
        return self.order


def hash_of(name: str) -> int:
    """Return a hash that is the same in every process, unlike `hash`."""
    return sum((index + 1) * byte for index, byte in enumerate(name.encode()))
