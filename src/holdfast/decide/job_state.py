"""The state of one job: its phase, its attempt, and the few methods that change them.

The gang and each of its parts write here and nowhere else. What a part keeps for itself, no other part reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.decide.attempt_members import AttemptMembers
from holdfast.decide.attempt_state import AttemptState
from holdfast.decide.attempt_timers import AttemptTimers, TimerKind
from holdfast.decide.node_order import line_up
from holdfast.decide.phases import FIRST, TABLE, InvalidTransition, Phase, PhaseTrigger
from holdfast.decide.placement import on_node, place
from holdfast.decide.port_gathering import gathered
from holdfast.model import events as ev
from holdfast.model.actions import Action, Avoid, Say
from holdfast.model.decisions import AttemptRecord, DecisionKind, JobReport
from holdfast.model.evidence import StopRequest
from holdfast.model.exit_report import ExitReport
from holdfast.model.faults import DeviceStanding
from holdfast.model.job_spec import JobSpec, NodeInfo, Seat
from holdfast.model.peer_addresses import ports_needed

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue

STORY = 256
"""How many of its moves a gang keeps in its story."""
STORY_TEXT = 200
"""Characters of the reason for one move that the story keeps."""


class PendingRequeue(msgspec.Struct, frozen=True):
    """The owner asked the platform to start the job again. This says how the job ends if the platform does not."""

    reason: str
    report: ExitReport
    kind: DecisionKind


class GangState:
    """The state of one job. Times are seconds on the clock of `now`."""

    def __init__(
        self,
        catalogue: Catalogue | None,
        *,
        timers: Callable[[], AttemptTimers] = AttemptTimers,
        roster: Callable[[tuple[Seat, ...]], AttemptMembers] = AttemptMembers,
    ) -> None:
        self.catalogue = catalogue
        self.phase: Phase = FIRST
        self.attempt = 0
        self.highest = 0
        """The highest attempt that any node has reported: above `attempt` where the journal has lost its tail."""
        self.term = 1
        """Rises with each restart of the owner; every command carries it."""
        self.run = 0
        """How often the platform has started the job again."""
        self.began_after = 0
        """The last attempt before this run of the job; 0: there was none."""
        self.asked: PendingRequeue | None = None
        """The open request to the platform, while the job is QUEUED."""
        self.unrecorded = 0
        """Requeues that no attempt's record tells of."""
        self.handled_at = 0.0
        """When the event before this one was handled."""
        self.job_id = ""
        self.known: dict[str, NodeInfo] = {}
        """All nodes that have joined, by their names; also those that are absent now."""
        self.absent: dict[str, str] = {}
        """Nodes that cannot be used until their agents are heard again, each with the reason."""
        self.left: set[str] = set()
        """The absent nodes whose agent has left for good: only a new hello brings such a node back."""
        self.line: tuple[str, ...] = ()
        """The nodes of the last attempt that was placed, in the order of their ranks."""
        self.seed = 0
        self.records: list[AttemptRecord] = []
        self.avoid: set[str] = set()
        self.kept_out: tuple[DeviceStanding, ...] = ()
        self.utc_offset_s = 0.0
        self.report: JobReport | None = None
        self.stop: StopRequest | None = None
        """The request that ends the job as soon as its attempt ends."""
        self.due = 0.0
        """When the pause before the next attempt ends."""
        self.reset_s = 0.0
        """How long resets may delay the next attempt's checks."""
        self.entered_at = 0.0
        """When the present phase began."""
        self.stale_reports = 0
        self.cause = ""
        """The event that led to the job's present state, by its kind and number; see `caused_by_this`."""
        self.event: ev.Event | None = None
        """The event that is being handled."""
        self.events = 0
        """How many events were handled: the number of this one in the job's journal."""
        self.timers = timers()
        self.out: list[Action] = []
        """The actions that this event leads to, in the order to perform them."""
        self._roster = roster
        self._spec: JobSpec | None = None
        self._story: deque[tuple[float, int, Phase, str, str]] = deque(maxlen=STORY)
        self.trial = AttemptState(0, 0.0, roster=roster)

    @property
    def submitted(self) -> bool:
        return self._spec is not None

    @property
    def spec(self) -> JobSpec:
        if self._spec is None:
            raise RuntimeError("the first event of a gang is JobSubmitted")
        return self._spec

    @spec.setter
    def spec(self, spec: JobSpec) -> None:
        self._spec = spec

    def story(self) -> list[str]:
        """What the gang did and why, oldest first: one line for each move, with the event that caused it."""
        return [
            f"{at:.3f} attempt {attempt} {phase} ({cause}): {why}" for at, attempt, phase, cause, why in self._story
        ]

    def this_event(self) -> str:
        """`agent-reported:17`; empty while no event is handled."""
        if self.event is None:
            return ""
        return f"{self.event.__struct_config__.tag}:{self.events}".replace("_", "-")

    def caused_by_this(self, cause: str = "") -> None:
        """This event, or the named one, is the cause of all that follows, up to the next trouble."""
        self.cause = cause or self.this_event()

    def move(self, trigger: PhaseTrigger, now: float, why: str) -> None:
        """Move to the phase to which the table leads; the attempt is charged with the time spent in the last one.

        Raises `InvalidTransition` where the table has no such move. Then nothing has changed.
        """
        target = TABLE.get((self.phase, trigger))
        if target is None:
            raise InvalidTransition(self.phase, trigger, self.story())
        parts, name = self.trial.parts, self.phase.value.lower()
        parts[name] = parts.get(name, 0.0) + max(0.0, now - self.entered_at)
        self.phase = target
        self.entered_at = now
        self._story.append((now, self.attempt, self.phase, self.cause, why[:STORY_TEXT]))

    def try_next(self, now: float, waited: dict[str, float] | None = None) -> None:
        """A new trial with the present number: it keeps nothing of the one before. `waited`: seconds, by phase."""
        self.trial = AttemptState(self.attempt, now, waited or {"backoff": 0.0}, roster=self._roster)

    def say(self, text: str, *, cause: str = "") -> None:
        """Add one line for the user. `cause`: the event, where it is not the one that led to the present state."""
        self.out.append(Say(text=text, cause=cause or self.cause))

    def arm(self, timer: TimerKind, due: float) -> None:
        self.timers.arm(timer, due, self.attempt, self.phase)

    def armed(self, timer: TimerKind) -> bool:
        return self.timers.armed(timer, self.attempt, self.phase)

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes that have joined, in the order in which they joined."""
        return tuple(self.known.values())

    @property
    def many(self) -> bool:
        """Whether there is more than one node, or may be."""
        return self.spec.nodes.many or len(self.known) > 1

    def addresses(self) -> dict[str, str]:
        """The address at which peers reach each node, by its name."""
        return {node.name: node.address for node in self.nodes if node.address}

    @property
    def pending(self) -> bool:
        """Whether the present attempt has a number and has not ended yet."""
        return self.attempt > 0 and (not self.records or self.records[-1].attempt < self.attempt)

    def ended(self) -> tuple[AttemptRecord, ...] | None:
        """How many attempts have ended; None: the job has not begun."""
        return tuple(self.records) if self.submitted else None

    def here(self) -> tuple[str, ...]:
        """The nodes that can be used at all: they have joined, are not lost and are not avoided."""
        return tuple(name for name in self.known if name not in self.absent and name not in self.avoid)

    def places(self, without: Collection[str] = (), among: Collection[str] | None = None) -> tuple[Seat, ...] | None:
        """A seat for every rank, without these nodes and devices as well; None where too few places are left.

        `among`: use only these nodes.
        """
        avoid = {*self.avoid, *without} if without else self.avoid
        if not self.many:
            return place(self.spec, self.nodes, avoid)
        nodes = self.line_up(avoid, among)
        return place(self.spec, nodes, avoid) if nodes else None

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        """The nodes that the next attempt would have, in the order of their ranks; empty where there are too few."""
        out = set(self.absent)
        if among is not None:
            out.update(name for name in self.known if name not in among)
        return line_up(self.spec, self.nodes, avoid, out, self.line)

    def names_on(self, node: str, names: Iterable[str]) -> tuple[str, ...]:
        """The nodes and devices to avoid, from a node's own names for them; on one machine its names are enough."""
        return on_node(self.known.get(node) if self.many else None, names)

    def where(self, names: Sequence[str]) -> tuple[str, ...]:
        """The job's names of devices that a report names as their nodes do."""
        found = self.trial.found
        first = found.report.first if found is not None else None
        nodes = {fault.event.device: fault.event.node for fault in self.trial.faults}
        at = first.node if first is not None else ""
        return tuple(each for name in names for each in self.names_on(nodes.get(name, at), (name,)))

    def node_of(self, name: str) -> str:
        """The node that this name to avoid means, or the node of the device that it means."""
        if name in self.known:
            return name
        node, device, _ = name.partition("/")
        if device and node in self.known:
            return node
        on = (each.name for each in self.known.values() if name in each.devices)
        return next(on, "")

    def ports_to_ask(self) -> dict[str, int]:
        """How many ports each node has to reserve, if the next attempt had the present seats."""
        if not self.spec.tells_peers:
            return {}
        return ports_needed(self.spec, self.places() or ())

    def gather(self, seats: tuple[Seat, ...], reserved: Mapping[str, tuple[int, ...]]) -> str:
        """Tell the attempt where the tasks of these seats are reached. Returns why that is impossible, or nothing."""
        if not self.spec.tells_peers:
            return ""
        return gathered(self.spec, self.trial, seats, self.addresses() if self.many else {}, reserved)

    def first_node(self) -> str:
        """The node on which rank 0 would sit now; empty where too few places are left."""
        nodes = self.line_up(self.avoid)
        return nodes[0].name if nodes else ""

    def leave_out(self, names: Sequence[str], reason: str) -> None:
        fresh = tuple(name for name in names if name not in self.avoid)
        if fresh:
            self.avoid.update(fresh)
            self.out.append(Avoid(names=fresh, reason=reason, cause=self.cause))

    def lease_s(self) -> float:
        """After this many seconds of silence, no process of the silent node can live."""
        timers = self.spec.timers
        return timers.lease_s + timers.drift_s + timers.beat_s
