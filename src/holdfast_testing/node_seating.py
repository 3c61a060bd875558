"""A part of the witness. It knows when each node joined, and which ranks the node had in the previous attempt."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.exit_report import Trigger
from holdfast.model.gang_protocol import Peers, Prepare
from holdfast.model.peer_addresses import tasks_of
from holdfast.model.phrases import Phrase
from holdfast_testing.simulated_world import Violation, World

if TYPE_CHECKING:
    from holdfast.decide.gang import Gang

HAIR = 1e-6


def reserved(attempt: int, count: int) -> tuple[int, ...]:
    """Return the ports that a simulated node reserves for an attempt."""
    return tuple(1000 * attempt + number for number in range(count))


def of_attempt(port: int) -> int:
    """Return the attempt for which a port of `reserved` was reserved."""
    return port // 1000


class RefillWait:
    """The wait of a gang that could go on smaller, for another node. Times are simulated seconds."""

    def __init__(self, earliest: float | None = None) -> None:
        #: Before this time the gang begins only if no other node comes; None: too few nodes are there.
        self.earliest = earliest
        #: After this time the gang no longer waits.
        self.latest = math.inf


class Seating:
    """Checks the nodes and ranks of a gang whose nodes come and go; it checks no other gang.

    Times are simulated seconds.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.joining = bool(world.plan.joins)
        self.slots = {node.name: node.slots for node in world.plan.nodes}
        self.devices = {node.name: frozenset(node.devices) for node in world.plan.nodes}
        #: The nodes of the previous attempt, in the order of their ranks.
        self.line: tuple[str, ...] = ()
        #: The time at which the last node joined.
        self.came_at = 0.0
        self.waited_from = 0.0
        #: The places for which the platform has no room.
        self.no_room: set[int] = set()
        self.refill = RefillWait()
        self.lost_before: set[str] = set()
        #: Nodes that do not belong to the present run of the job.
        self.not_ours: set[str] = set()
        #: The list of peers that was checked last. A PREPARE to each node has the same list, so it is checked once.
        self._looked_at: Peers | None = None

    def moved(self, gang: Gang, event: ev.Event, before: Phase, attempt: int) -> None:
        """Check the gang after the owner has handled an event."""
        if not self.joining:
            return
        now, plan = self.world.now, self.world.plan.spec.nodes
        self._refilled(gang, event, before, attempt)
        if attempt == 0 and gang.attempt == 1 and before is Phase.ASSEMBLING and gang.phase is Phase.CHECKING:
            self._begun(len(self._here(gang)))
        if isinstance(event, ev.NodeJoined) and before is Phase.ASSEMBLING:
            self.came_at = now
        over = before is Phase.ASSEMBLING and gang.phase in (Phase.DONE, Phase.QUEUED) and gang.stop is None
        wait_s = plan.join_s if attempt == gang.began_after else plan.replace_s
        if over and now < self.waited_from + wait_s - HAIR:
            waited_s = now - self.waited_from
            raise Violation("assembly", f"nodes were waited for {waited_s:.3f} s instead of {wait_s:g} s")
        if over and len(here := self._here(gang)) >= plan.least:
            raise Violation("assembly", f"the job ends for want of nodes, and {', '.join(here)} are here")
        if gang.phase is Phase.ASSEMBLING and before is not Phase.ASSEMBLING:
            self.waited_from = now

    def _refilled(self, gang: Gang, event: ev.Event, before: Phase, attempt: int) -> None:
        """Check how long a gang that could go on smaller waits for another node."""
        now, plan, wait = self.world.now, self.world.plan.spec.nodes, self.refill
        if isinstance(event, ev.RoomChanged):
            (self.no_room.add if event.words else self.no_room.discard)(event.place)
        elif isinstance(event, ev.OwnerRecovered | ev.JobResumed):
            self.no_room.clear()
        if not plan.refill_s or attempt == gang.began_after:
            return
        here = len(self._here(gang))
        coming = here < plan.most and plan.most + plan.spares - here > len(self.no_room)
        if before in (Phase.BACKOFF, Phase.ASSEMBLING) and gang.phase is Phase.CHECKING and coming:
            since = now if before is Phase.BACKOFF else self.waited_from
            earliest = min(math.inf if wait.earliest is None else wait.earliest, since + plan.replace_s)
            if now < earliest - HAIR:
                raise Violation("refill", f"the gang goes on with {here} nodes, and another one may come")
        if gang.phase is not Phase.ASSEMBLING:
            self.refill = RefillWait()
            return
        if here < plan.least:
            wait.latest = math.inf
            if isinstance(event, ev.NodeLeft | ev.NodeSilent):
                wait.earliest = None
            return
        if not coming:
            raise Violation("refill", f"the gang waits with {here} nodes, and the platform has no other")
        wait.earliest = now + plan.refill_s if wait.earliest is None else wait.earliest
        wait.latest = now + plan.refill_s if wait.latest == math.inf else wait.latest
        if isinstance(event, ev.OwnerRecovered):
            wait.latest = max(wait.latest, now + self.world.plan.spec.timers.lease_s)
        if now > wait.latest + HAIR:
            raise Violation("refill", f"the gang waits with {here} nodes for more than {plan.refill_s:g} s")

    def _begun(self, count: int) -> None:
        now, plan = self.world.now, self.world.plan.spec.nodes
        if count < plan.least:
            raise Violation("assembly", f"the gang begins with {count} of at least {plan.least} nodes")
        quiet_s, all_here = now - self.came_at, count >= plan.most + plan.spares
        if not all_here and quiet_s < plan.last_call_s - HAIR and now - self.waited_from < plan.join_s - HAIR:
            raise Violation("assembly", f"the gang begins {quiet_s:.3f} s after a node came; others might come")

    def placed(self, gang: Gang) -> None:
        """Check which ranks each node got in a new attempt."""
        line, before, plan = gang.attempt_state.roster.nodes, self.line, self.world.plan.spec.nodes
        self.line = line
        if not self.joining:
            return
        if strange := self.not_ours & set(line):
            raise Violation("seats", f"{sorted(strange)} are of a run of the job that is over")
        if not plan.least <= len(line) <= plan.most:
            raise Violation("size", f"{len(line)} nodes take part; allowed are {plan.least} to {plan.most}")
        for node in line:
            if (count := sum(1 for _ in gang.attempt_state.roster.on(node))) != self.slots[node]:
                raise Violation("size", f"{node} has {count} workers, and {self.slots[node]} slots")
        usable = {node for node in gang.attempt_state.asked & set(gang.here()) if self._is_fit(gang, node)}
        if len(line) < plan.most and (idle := usable - set(line)):
            raise Violation("size", f"{len(line)} of {plan.most} nodes take part, and {sorted(idle)} stay idle")
        if before:
            self._kept(before, line, usable)

    def _kept(self, before: tuple[str, ...], line: tuple[str, ...], usable: set[str]) -> None:
        stayed = [node for node in before if node in line]
        if out := [node for node in before if node in usable and node not in line]:
            raise Violation("seats", f"{out[0]} was in the attempt before and could stay, and has no seat")
        if len(line) == len(before) and any(line.index(node) != before.index(node) for node in stayed):
            raise Violation("seats", f"{before} became {line}: a node that stayed has another rank")
        if len(line) < len(before) and stayed != [node for node in line if node in stayed]:
            raise Violation("seats", f"{before} became {line}: the nodes that stayed have another order")
        if before[0] in line and line[0] != before[0]:
            raise Violation("seats", f"rank 0 moves from {before[0]} to {line[0]}, and {before[0]} is there")

    def _here(self, gang: Gang) -> list[str]:
        return [name for name in gang.here() if self._is_fit(gang, name)]

    def _is_fit(self, gang: Gang, node: str) -> bool:
        return not self.devices[node] & gang.avoid

    def preparing(self, gang: Gang, command: Prepare) -> None:
        """Check a PREPARE command that the owner is sending."""
        self._peers(gang, command)
        if not self.joining:
            return
        first, meeting = gang.attempt_state.roster.nodes[0], command.meeting
        number = 1000 * command.attempt + gang.attempt_state.round
        if meeting is None or (meeting.address, meeting.port) != (first, number):
            raise Violation("meeting", f"attempt {command.attempt} meets at {meeting}, and rank 0 is on {first}")

    def _peers(self, gang: Gang, command: Prepare) -> None:
        peers, roles = command.peers, gang.spec.roles
        if not any(role.ports for role in roles) or (peers is not None and peers is self._looked_at):
            return
        self._looked_at = peers
        placements, nodes = gang.attempt_state.roster.placements, gang.attempt_state.roster.nodes
        if (
            peers is None
            or peers.tasks.keys() != {placement.role for placement in placements}
            or len(peers.hosts) != len(nodes)
        ):
            raise Violation("ports", f"attempt {command.attempt} does not tell where all of its tasks are: {peers}")
        for placement, task in zip(placements, tasks_of(peers), strict=True):
            own = [port for ports in task.ports.values() for port in ports]
            if (placement.role_rank, placement.node) != (task.index, nodes[task.node]):
                raise Violation(
                    "ports", f"rank {placement.rank} is on {placement.node}, and its peers look on {nodes[task.node]}"
                )
            if not own or {of_attempt(port) for port in own} != {command.attempt}:
                raise Violation("ports", f"rank {placement.rank} of attempt {command.attempt} is to open {own}")
        opened = Counter(
            (task.node, port) for task in tasks_of(peers) for ports in task.ports.values() for port in ports
        )
        if twice := [(nodes[place], port) for (place, port), count in opened.items() if count > 1]:
            raise Violation("ports", f"two tasks on one node are to open the same port: {twice}")

    def recorded(self, record: AttemptRecord) -> None:
        """Check the decision after an attempt: the first loss of a node must not make it avoided."""
        report = record.report
        if report.phrase != Phrase.NODE_FAILED or report.trigger is not Trigger.RUNTIME or not report.devices:
            return
        if record.decision.charged:
            raise Violation("I4", f"attempt {record.attempt} lost {', '.join(report.devices)}, and that is charged")
        if first := set(record.decision.avoid) - self.lost_before:
            raise Violation("seats", f"{sorted(first)} are avoided after the first loss")
        self.lost_before |= set(report.devices)

    def finished(self, report: JobReport) -> None:
        """Check the end of the job."""
        plan = self.world.plan.spec.nodes
        if self.joining and not report.attempts and report.report.phrase == Phrase.GANG_START_TIMEOUT:
            came = sum(at <= self.world.now - plan.join_s for at in self.world.plan.joins.values())
            if self.world.plan.quiet and came >= plan.least:
                raise Violation("assembly", f"{came} nodes came, and the gang did not begin")
