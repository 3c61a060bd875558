"""Simulated processes, and the room in which the ranks of one attempt meet.

A process boots, is prepared, gets its go, runs the user's program, meets its peers and works with them in step. It can
fall ill in each of these parts. The peers of a dead process notice its death after a while, and die with a message
about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.model.exit_report import WorkerExit
from holdfast.model.job_spec import Placement
from holdfast.model.process_messages import Fact, WorkerExited, WorkerPrepared, WorkerUp
from holdfast_testing.simulated_world import World
from holdfast_testing.trouble_plan import Ending, Ill, Plan, What, When

if TYPE_CHECKING:
    from holdfast_testing.witness import Witness

#: Seconds from SIGKILL to the end of a process that can be killed.
KILL_S = 0.005
#: Seconds that a process stuck in the kernel outlives SIGKILL.
STUCK_S = 500.0


class Node(Protocol):
    """The parts of a simulated machine that a process uses."""

    boot: int
    rooms: Rooms
    witness: Witness
    world: World

    def local(self, now: float) -> float:
        """Return the time of the machine's clock at `now`."""
        ...

    def learn(self, fact: Fact, boot: int) -> None:
        """Tell a fact about a process to the agent with this boot number."""
        ...

    def gone(self, process: Process) -> None:
        """Note that the process has ended and will be reaped soon."""
        ...

    def killed_for_memory(self, process: Process) -> None:
        """Note that the kernel killed the process because the machine's memory ran out."""
        ...

    def next_order(self) -> int:
        """Return the number of the next death on this machine."""
        ...


class Process:
    """One rank's process in one attempt.

    `machine`: the node that runs it. `attempt`: the attempt's number. `placement`: its rank, role and node. `size`: the
    number of ranks in the attempt. `ill`: its planned trouble; None: it stays healthy. The attribute `cause` is the
    cause of its death: own, peer, stop, done, power or agent; empty while it lives.
    """

    __slots__ = (
        "attempt",
        "boot",
        "cause",
        "ill",
        "machine",
        "pid",
        "placement",
        "room",
        "started_at",
        "state",
        "termed",
        "was_dying",
    )

    def __init__(self, machine: Node, attempt: int, placement: Placement, size: int, ill: Ill | None) -> None:
        world = machine.world
        self.machine = machine
        self.attempt = attempt
        self.placement = placement
        self.ill = ill
        self.boot = machine.boot
        self.pid = 1000 * attempt + placement.local_rank  # equal on all nodes, as can happen in reality
        self.state = "booting"
        self.cause = ""
        self.termed = False
        #: Whether the process had begun to die by itself when it was signalled.
        self.was_dying = False
        self.started_at = machine.local(world.now)
        self.room = machine.rooms.of(attempt, size)
        if ill is not None and ill.when is When.BOOT:
            world.after(ill.after_s, self._befall)
            if ill.what is What.HANG:
                return
        world.after(world.plan.boot_s.get(placement.rank, 1.0), self._booted)

    @property
    def dead(self) -> bool:
        return bool(self.cause)

    # ------------------------------------------------------------------------------------------ its life

    def _booted(self) -> None:
        if not self.dead:
            self.state = "prepared"
            self.machine.witness.prepared(self.attempt, self.placement.rank)
            self.machine.learn(WorkerPrepared(attempt=self.attempt, rank=self.placement.rank, pid=self.pid), self.boot)

    def release(self) -> None:
        """Let the process begin its work: from now on it runs the user's program."""
        if not self.dead and self.state == "prepared":
            self.state = "going"
            self.machine.witness.released(self.attempt, self.placement.rank)
            self.machine.world.after(self.machine.world.plan.up_s, self._up)

    def _up(self) -> None:
        if self.dead:
            return
        self.state = "up"
        self.machine.witness.up(self.attempt, self.placement.rank)
        self.machine.learn(WorkerUp(attempt=self.attempt, rank=self.placement.rank), self.boot)
        if self.ill is not None and self.ill.when is When.CONNECT:
            self.machine.world.after(self.ill.after_s, self._befall)
            if self.ill.what is What.HANG:
                return
        self.room.join(self)

    def _befall(self) -> None:
        """Begin the planned trouble of this process."""
        ill = self.ill
        if self.dead or ill is None:
            return
        self.machine.witness.fell_ill(self.attempt, self.placement, ill.what.value)
        if ill.what is What.HANG:
            self.state = "hung"
            self.machine.world.say(f"rank {self.placement.rank}", f"hangs ({ill.when})")
            self.room.stalled(self)
        elif ill.what is What.LEAVE:
            self.end("own", Ending(exit_code=0))
        elif dying_s := self.machine.world.plan.dying_s:
            self.state = "dying"
            self.machine.witness.dying(self.attempt, self.placement.rank)
            self.machine.world.after(dying_s, self.end, "own", ill.ending)
            self.room.lost(self, self.machine.world.plan.peer_detect_s)
        else:
            self.end("own", ill.ending)

    # ------------------------------------------------------------------------------------------ its end

    def signal(self, *, hard: bool) -> None:
        world, plan, rank = self.machine.world, self.machine.world.plan, self.placement.rank
        if self.dead:
            return
        if self.state == "dying":
            # A process that is dying already only ends. SIGKILL makes that quick, without changing the cause.
            self.was_dying = True
            if hard and self.ill is not None:
                world.after(KILL_S, self.end, "own", self.ill.ending)
        elif hard:
            stuck = (self.attempt, rank) in plan.unkillable
            world.after(STUCK_S if stuck else KILL_S, self.end, "stop", Ending(signal=9))
        elif not self.termed and rank not in plan.stubborn and (self.attempt, rank) not in plan.unkillable:
            self.termed = True
            world.after(plan.term_s * (0.5 + world.dice.random()), self.end, "stop", plan.term_ending)

    def end(self, cause: str, ending: Ending) -> None:
        """Let the process die. Its machine notices at once, and its peers later."""
        if self.dead:
            return
        machine, placement = self.machine, self.placement
        self.cause = cause
        how = f"signal {ending.signal}" if ending.signal is not None else f"status {ending.exit_code}"
        machine.world.say(
            f"rank {placement.rank}", f"attempt {self.attempt} ends ({cause}): {how} {ending.words}".rstrip()
        )
        machine.witness.died(self.attempt, placement.rank, cause)
        exit_ = WorkerExit(
            role=placement.role,
            rank=placement.rank,
            node=placement.node,
            attempt=self.attempt,
            pid=self.pid,
            local_rank=placement.local_rank,
            exit_code=ending.exit_code,
            signal=ending.signal,
            started_at=self.started_at,
            ended_at=machine.local(machine.world.now),
            order=machine.next_order(),
            was_dying=self.was_dying,
            last_words=ending.words,
        )
        if ending.by_memory and cause == "own":
            machine.killed_for_memory(self)
        machine.learn(WorkerExited(exit=exit_), self.boot)
        machine.gone(self)
        if cause != "done" and self.state != "dying":
            self.room.lost(self, machine.world.plan.peer_detect_s)

    def vanish(self, cause: str) -> None:
        """Let the process die together with its machine or its agent, so that no agent learns of it."""
        if not self.dead:
            self.cause = cause
            self.machine.witness.died(self.attempt, self.placement.rank, cause)
            plan = self.machine.world.plan
            self.room.lost(self, plan.collective_timeout_s if cause == "power" else plan.peer_detect_s)


class Room:
    """The rendezvous of one attempt's ranks: they work when all of them have joined.

    `world`, `witness`: parts of the simulation. `work`: the job's saved work. `attempt`: the attempt's number. `size`:
    the number of ranks in the attempt.
    """

    def __init__(self, world: World, witness: Witness, work: Work, attempt: int, size: int) -> None:
        self.world = world
        self.witness = witness
        self.work = work
        self.attempt = attempt
        self.size = size
        self.here: dict[int, Process] = {}
        self.complete = False
        self.broken = False
        self.began_at = 0.0
        self.on_hang: Callable[[int, int], None] | None = None
        self.noticed: set[int] = set()
        self.hanging: set[int] = set()

    @property
    def is_deserted(self) -> bool:
        return bool(self.here) and all(process.dead for process in self.here.values())

    def join(self, process: Process) -> None:
        plan, rank = self.world.plan, process.placement.rank
        self.here[rank] = process
        self.world.after(plan.connect_timeout_s, self._gave_up, rank)
        all_here = len(self.here) == self.size and not any(peer.dead for peer in self.here.values())
        if all_here and not self._split():
            self.complete = True
            self.world.after(plan.connect_s, self._begin)

    def _split(self) -> bool:
        apart = self.world.plan.unreachable
        return bool(apart) and len({peer.placement.node for peer in self.here.values()} & apart) > 1

    def _gave_up(self, rank: int) -> None:
        """Let a rank die that has waited too long for its peers."""
        process = self.here[rank]
        if self.complete or process.dead:
            return
        gone = (other for other in range(self.size) if other not in self.here or self.here[other].dead)
        missing = next(gone, None)
        if missing is None:  # all ranks have come, but some of them cannot reach each other
            apart = self.world.plan.unreachable - {process.placement.node}
            missing = min(other for other, peer in self.here.items() if peer.placement.node in apart)
        process.end("peer", Ending(exit_code=1, words=f"connect timeout: no answer from rank {missing}"))

    def _begin(self) -> None:
        if self.broken:
            return
        plan = self.world.plan
        self.began_at = self.world.now
        for process in self.here.values():
            ill = process.ill
            if ill is not None and ill.when is When.RUN:
                self.world.after(ill.after_s, process._befall)
        if plan.work_s:
            self.world.after(max(0.0, plan.work_s - self.work.saved_s), self._finish)

    def _finish(self) -> None:
        if self.broken or any(process.state == "hung" for process in self.here.values()):
            return
        self.broken = True
        self.work.saved_s = self.world.plan.work_s
        for process in self.here.values():
            delay = 0.1 * self.world.dice.random()
            self.world.after(delay, process.end, "done", Ending(exit_code=0))

    def lost(self, process: Process, notice_s: float) -> None:
        """Handle the death of a member: each other member notices it after some time."""
        if self.here.get(process.placement.rank) is not process:
            return  # The process never joined: the others still wait, and another process may join in its place.
        if not self.broken and self.began_at:
            self.save()
        self.broken = True
        if not self.complete:
            return
        if notice_s < 0:
            notice_s = self.world.plan.collective_timeout_s
        for peer in self.here.values():
            if not peer.dead and peer.placement.rank not in self.noticed:
                self.noticed.add(peer.placement.rank)
                self.world.after(
                    notice_s * (0.5 + self.world.dice.random()), self._notice, peer, process.placement.rank
                )

    def stalled(self, process: Process) -> None:
        """Handle a hanging member: the peers that wait for it give up after some time."""
        if self.on_hang is not None and process.placement.rank not in self.hanging:
            self.on_hang(self.attempt, process.placement.rank)
        self.hanging.add(process.placement.rank)
        if not self.complete:
            return
        self.save()
        wait_s = self.world.plan.collective_timeout_s
        for peer in self.here.values():
            if peer is not process and not peer.dead and peer.placement.rank not in self.noticed:
                self.noticed.add(peer.placement.rank)
                self.world.after(
                    wait_s * (0.9 + 0.2 * self.world.dice.random()), self._notice, peer, process.placement.rank
                )

    def _notice(self, peer: Process, rank: int) -> None:
        if peer.dead or peer.state in ("hung", "dying"):
            return
        ending = self.world.dice.choice(self.world.plan.peer_words)
        words = ending.words.format(rank=rank)
        peer.end("peer", Ending(exit_code=ending.exit_code, signal=ending.signal, words=words))

    def save(self) -> None:
        """Save the finished steps, as a checkpoint does."""
        plan = self.world.plan
        if plan.step_s and self.began_at:
            ran = self.work.saved_s + self.world.now - self.began_at
            self.work.saved_s = max(self.work.saved_s, ran - ran % plan.step_s)
            self.began_at = 0.0


class Work:
    """The job's work over all attempts: the seconds of work that checkpoints have saved."""

    def __init__(self) -> None:
        self.saved_s = 0.0

    def step(self, plan: Plan) -> int | None:
        """Return the last step that all ranks reported; None if the program reports no steps."""
        return int(self.saved_s / plan.step_s) if plan.step_s else None


class Rooms:
    """The rooms of all attempts."""

    def __init__(self, world: World, witness: Witness) -> None:
        self._world = world
        self._witness = witness
        self.work = Work()
        #: Called with (attempt, rank) when a process begins to hang while the gang works.
        self.on_hang: Callable[[int, int], None] | None = None
        self._rooms: dict[int, Room] = {}

    def of(self, attempt: int, size: int) -> Room:
        before = self._rooms.get(attempt)
        # If the disk and the agents have lost an attempt number, the owner uses it again. By then the first workers are
        # dead.
        again = self._world.plan.lying_disk and before is not None and before.is_deserted
        if before is None or again:
            room = self._rooms[attempt] = Room(self._world, self._witness, self.work, attempt, size)
            room.on_hang = self.on_hang
        return self._rooms[attempt]
