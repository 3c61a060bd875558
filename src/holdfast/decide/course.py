"""The course of one job: its phase, its attempt, and the few verbs by which anything moves.

The gang and each of its parts write here, and nowhere else; what a part keeps for itself no other part reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from holdfast.decide.phases import FIRST, TABLE, Phase, Trigger
from holdfast.decide.placement import place
from holdfast.decide.roster import Roster
from holdfast.decide.timers import Timer, Timers
from holdfast.decide.trial import Trial
from holdfast.model import events as ev
from holdfast.model.actions import Action, Avoid, Say
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import StopRequest
from holdfast.model.faults import DeviceStanding
from holdfast.model.jobs import JobSpec, NodeInfo, Seat

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue

STORY = 256
"""How many lines of its own story a gang remembers."""


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
        self.job_id = ""
        self.nodes: tuple[NodeInfo, ...] = ()
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

    def try_next(self, now: float, waited_s: float = 0.0) -> None:
        """A new trial for the present number: nothing of the one before is kept."""
        self.trial = Trial(self.attempt, now, waited_s, roster=self._roster)

    def say(self, text: str, *, cause: str = "") -> None:
        """One line for people. `cause`: the event, where it is another than what led to here."""
        self.out.append(Say(text=text, cause=cause or self.cause))

    def arm(self, timer: Timer, due: float) -> None:
        self.timers.arm(timer, due, self.attempt, self.phase)

    def armed(self, timer: Timer) -> bool:
        return self.timers.armed(timer, self.attempt, self.phase)

    def places(self, without: Collection[str] = ()) -> tuple[Seat, ...] | None:
        """A seat for every rank, also without these nodes and devices; None where too few places are left."""
        return place(self.spec, self.nodes, {*self.avoid, *without} if without else self.avoid)

    def leave_out(self, names: Sequence[str], reason: str) -> None:
        fresh = tuple(name for name in names if name not in self.avoid)
        if fresh:
            self.avoid.update(fresh)
            self.out.append(Avoid(names=fresh, reason=reason, cause=self.cause))

    def lease_s(self) -> float:
        """After this much silence no process of the silent node can live."""
        timers = self.spec.timers
        return timers.lease_s + timers.drift_s + timers.beat_s
