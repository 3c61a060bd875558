"""The course of one job: its phase, its attempt, and the few verbs by which anything moves.

The gang and each of its parts write here, and nowhere else; what a part keeps for itself no other part reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.decide.phases import FIRST, TABLE, Phase, Trigger
from holdfast.decide.placement import on_node, place
from holdfast.decide.roster import Roster
from holdfast.decide.timers import Timer, Timers
from holdfast.decide.trial import Trial
from holdfast.model import events as ev
from holdfast.model.actions import Action, Avoid, Say
from holdfast.model.decisions import AttemptRecord, DecisionKind, JobReport
from holdfast.model.evidence import StopRequest
from holdfast.model.exits import ExitReport
from holdfast.model.faults import DeviceStanding
from holdfast.model.jobs import JobSpec, NodeInfo, Seat

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue

STORY = 256
"""How many lines of its own story a gang remembers."""


class Asked(msgspec.Struct, frozen=True):
    """The platform was asked to start the job again, and how the job ends where it does not."""

    reason: str
    report: ExitReport
    kind: DecisionKind


class Course:
    """Where one job stands. Times are seconds on the clock of `now`."""

    def __init__(
        self,
        catalogue: Catalogue | None,
        *,
        timers: Callable[[], Timers] = Timers,
        roster: Callable[[tuple[Seat, ...]], Roster] = Roster,
    ) -> None:
        self.catalogue = catalogue
        self.phase: Phase = FIRST
        self.attempt = 0
        self.highest = 0
        """The highest attempt that any word was had of: more than `attempt` where the journal has lost its tail."""
        self.term = 1
        """Rises with every return of the owner; every command carries it."""
        self.run = 0
        """How often the platform has started the job again."""
        self.began_after = 0
        """The attempt after which this run of the job began; 0: there was none."""
        self.asked: Asked | None = None
        """Of a job that is QUEUED."""
        self.unrecorded = 0
        """Requeues that followed no attempt."""
        self.handled_at = 0.0
        """When the event before this one was handled."""
        self.job_id = ""
        self.known: dict[str, NodeInfo] = {}
        """All nodes that have joined, by their names; also those that are not here now."""
        self.absent: dict[str, str] = {}
        """Nodes that cannot be used before they speak again, each with the reason."""
        self.left: set[str] = set()
        """Of those: the ones whose agent will not speak again. Only a new hello brings such a node back."""
        self.line: tuple[str, ...] = ()
        """The nodes of the last attempt that was placed, in the order of their ranks."""
        self.seed = 0
        self.records: list[AttemptRecord] = []
        self.avoid: set[str] = set()
        self.kept_out: tuple[DeviceStanding, ...] = ()
        self.utc_offset_s = 0.0
        self.report: JobReport | None = None
        self.stop: StopRequest | None = None
        """The request that ends the job, whenever its attempt ends."""
        self.due = 0.0
        """When the pause before the next attempt ends."""
        self.reset_s = 0.0
        """How long resets may hold the next attempt's checks up."""
        self.entered_at = 0.0
        """When the present phase began."""
        self.stale_reports = 0
        self.cause = ""
        """The event that led to where the job is now, by its kind and number; see `caused_by_this`."""
        self.event: ev.Event | None = None
        """What is being handled."""
        self.events = 0
        """So many events were handled: the number of this one in the job's journal."""
        self.timers = timers()
        self.out: list[Action] = []
        """What is to be done after this event, in this order."""
        self._roster = roster
        self._spec: JobSpec | None = None
        self._story: deque[tuple[float, int, Phase, str, str]] = deque(maxlen=STORY)
        self.trial = Trial(0, 0.0, roster=roster)

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
        """What it did and why, oldest first: one line a move, with the event that all of it follows from."""
        return [
            f"{at:.3f} attempt {attempt} {phase} ({cause}): {why}" for at, attempt, phase, cause, why in self._story
        ]

    def this_event(self) -> str:
        """`agent-reported:17`; empty while none is handled."""
        if self.event is None:
            return ""
        return f"{self.event.__struct_config__.tag}:{self.events}".replace("_", "-")

    def caused_by_this(self, cause: str = "") -> None:
        """What follows from now on, up to the next trouble, follows from this event, or from the one named."""
        self.cause = cause or self.this_event()

    def move(self, trigger: Trigger, now: float, why: str) -> None:
        """Into the phase to which the table leads; the time spent in the last one is the attempt's."""
        parts, name = self.trial.parts, self.phase.value.lower()
        parts[name] = parts.get(name, 0.0) + max(0.0, now - self.entered_at)
        self.phase = TABLE[self.phase, trigger]
        self.entered_at = now
        self._story.append((now, self.attempt, self.phase, self.cause, why))

    def try_next(self, now: float, waited: dict[str, float] | None = None) -> None:
        """A new trial for the present number: nothing of the one before is kept. `waited`: seconds, by their phase."""
        self.trial = Trial(self.attempt, now, waited or {"backoff": 0.0}, roster=self._roster)

    def say(self, text: str, *, cause: str = "") -> None:
        """One line for people. `cause`: the event, where it is another than what led to here."""
        self.out.append(Say(text=text, cause=cause or self.cause))

    def arm(self, timer: Timer, due: float) -> None:
        self.timers.arm(timer, due, self.attempt, self.phase)

    def armed(self, timer: Timer) -> bool:
        return self.timers.armed(timer, self.attempt, self.phase)

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All that have joined, in the order in which they came."""
        return tuple(self.known.values())

    @property
    def many(self) -> bool:
        """Whether there is more than one node, or may be."""
        return self.spec.nodes.many or len(self.known) > 1

    def addresses(self) -> dict[str, str]:
        """Where peers reach each node, by its name."""
        return {node.name: node.address for node in self.nodes if node.address}

    @property
    def pending(self) -> bool:
        """Whether the present attempt has a number, and no end yet."""
        return self.attempt > 0 and (not self.records or self.records[-1].attempt < self.attempt)

    def ended(self) -> tuple[AttemptRecord, ...] | None:
        """The attempts that are over; None: the job has not begun."""
        return tuple(self.records) if self.submitted else None

    def here(self) -> tuple[str, ...]:
        """The nodes that can be used at all: they have joined, are not lost and are not avoided."""
        return tuple(name for name in self.known if name not in self.absent and name not in self.avoid)

    def places(self, without: Collection[str] = (), among: Collection[str] | None = None) -> tuple[Seat, ...] | None:
        """A seat for every rank, also without these nodes and devices; None where too few places are left.

        `among`: only on these nodes.
        """
        avoid = {*self.avoid, *without} if without else self.avoid
        if not self.many:
            return place(self.spec, self.nodes, avoid)
        nodes = self.line_up(avoid, among)
        return place(self.spec, nodes, avoid) if nodes else None

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        """The nodes that the next attempt would have, in the order of their ranks; empty where they are too few."""
        from holdfast.decide.lineup import line_up  # one node needs no order

        out = set(self.absent)
        if among is not None:
            out.update(name for name in self.known if name not in among)
        return line_up(self.spec, self.nodes, avoid, out, self.line)

    def names_on(self, node: str, names: Iterable[str]) -> tuple[str, ...]:
        """What is avoided by these names of a node's own; on one machine they need no more."""
        return on_node(self.known.get(node) if self.many else None, names)

    def where(self, names: Sequence[str]) -> tuple[str, ...]:
        """Devices that a report names by what their nodes call them, as the job tells them apart."""
        found = self.trial.found
        first = found.report.first if found is not None else None
        nodes = {fault.event.device: fault.event.node for fault in self.trial.faults}
        at = first.node if first is not None else ""
        return tuple(each for name in names for each in self.names_on(nodes.get(name, at), (name,)))

    def node_of(self, name: str) -> str:
        """The node that something to be avoided is, or is on."""
        if name in self.known:
            return name
        node, device, _ = name.partition("/")
        if device and node in self.known:
            return node
        on = (each.name for each in self.known.values() if name in each.devices)
        return next(on, "")

    def ports_to_ask(self) -> dict[str, int]:
        """How many ports each node has to reserve, with the seats that the attempt would have now."""
        if not self.spec.tells_peers:
            return {}
        from holdfast.model.peers import ports_needed  # few jobs ask for them

        return ports_needed(self.spec, self.places() or ())

    def gather(self, seats: tuple[Seat, ...], reserved: Mapping[str, tuple[int, ...]]) -> str:
        """Where the tasks of these seats are becomes the attempt's. Returns why that cannot be; empty: all is well."""
        if not self.spec.tells_peers:
            return ""
        from holdfast.decide.reserving import gathered  # nor this

        return gathered(self.spec, self.trial, seats, self.addresses() if self.many else {}, reserved)

    def first_node(self) -> str:
        """The node that rank 0 would sit on now; empty where too few places are left."""
        nodes = self.line_up(self.avoid)
        return nodes[0].name if nodes else ""

    def leave_out(self, names: Sequence[str], reason: str) -> None:
        fresh = tuple(name for name in names if name not in self.avoid)
        if fresh:
            self.avoid.update(fresh)
            self.out.append(Avoid(names=fresh, reason=reason, cause=self.cause))

    def lease_s(self) -> float:
        """After this much silence no process of the silent node can live."""
        timers = self.spec.timers
        return timers.lease_s + timers.drift_s + timers.beat_s
