"""The state of one job: its phase, its attempt, and the methods that change them.

The gang and its parts read the fields and call the methods; only this file writes the fields
(`tests/project/test_tidy.py`). No part reads another part's private state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.decide.attempt_members import AttemptMembers
from holdfast.decide.attempt_state import AttemptState
from holdfast.decide.attempt_timers import AttemptTimers, TimerKind
from holdfast.decide.phases import FIRST, TABLE, InvalidTransition, Phase, PhaseTrigger
from holdfast.decide.placement import line_up, on_node, place
from holdfast.model import events as ev
from holdfast.model.actions import Action, Avoid, FinishJob, RecordAttempt, Say
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import StopRequest
from holdfast.model.exit_report import ExitReport
from holdfast.model.faults import DeviceStanding
from holdfast.model.job_spec import JobSpec, NodeInfo, Placement
from holdfast.model.peer_addresses import ports_needed

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue

#: The number of latest transitions that `story` keeps.
STORY = 256
#: The longest reason of a transition in `story`, in characters.
STORY_TEXT = 200


class PendingRequeue(msgspec.Struct, frozen=True):
    """A request to the platform for another run of the job. It also says how the job ends if the platform refuses."""

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
        roster: Callable[[tuple[Placement, ...]], AttemptMembers] = AttemptMembers,
    ) -> None:
        """`timers`, `roster`: the classes of the job's parts; tests replace them."""
        self.catalogue = catalogue
        self.phase: Phase = FIRST
        self.attempt = 0
        #: The highest attempt number that the owner or any node knows. It is higher than `attempt` if the journal has
        #: lost its last events.
        self.highest = 0
        #: The owner's term, which every command contains. It rises with each restart of the owner.
        self.term = 1
        #: The number of the present run: how often the platform has started the job again.
        self.run = 0
        #: The last attempt before the present run of the job; 0: this is the first run.
        self.began_after = 0
        #: The request for another run, until the platform answers it (phase QUEUED); else None.
        self.asked: PendingRequeue | None = None
        #: The number of requeues that followed no attempt, so that no attempt's record counts them.
        self.unrecorded = 0
        #: When the last event was handled, in seconds.
        self.handled_at = 0.0
        self.job_id = ""
        self._known: dict[str, NodeInfo] = {}
        #: All nodes that have joined, by name, including those that are absent now.
        self.known: Mapping[str, NodeInfo] = self._known
        self._absent: dict[str, str] = {}
        #: Node → why it cannot be used, until its agent reports again.
        self.absent: Mapping[str, str] = self._absent
        self._left: set[str] = set()
        #: The absent nodes whose agents have left. Such a node can only be used again after a hello, the first message
        #: of a new agent.
        self.left: AbstractSet[str] = self._left
        self._no_room: dict[int, str] = {}
        #: Place of a missing node → why the platform has no room for the node now, in the platform's words.
        self.no_room: Mapping[int, str] = self._no_room
        #: The nodes of the last attempt whose ranks were placed, in the order of their ranks.
        self.line: tuple[str, ...] = ()
        self.seed = 0
        self._records: list[AttemptRecord] = []
        self.records: Sequence[AttemptRecord] = self._records
        self._avoid: set[str] = set()
        self.avoid: AbstractSet[str] = self._avoid
        self.kept_out: tuple[DeviceStanding, ...] = ()
        self.utc_offset_s = 0.0
        self.report: JobReport | None = None
        #: The stop request that ends the job after its present attempt; None: there is none.
        self.stop: StopRequest | None = None
        #: When the pause before the next attempt ends, in seconds.
        self.due = 0.0
        #: Seconds by which resets of devices may delay the checks of the next attempt.
        self.reset_s = 0.0
        #: When the present phase began, in seconds.
        self.entered_at = 0.0
        self.stale_reports = 0
        #: The event that led to the job's present state, as kind and number: `agent-reported:17` (see
        #: `caused_by_this`).
        self.cause = ""
        #: The event that is being handled, or was handled last.
        self.event: ev.Event | None = None
        #: The number of handled events. It is also the number of the present event in the job's journal.
        self.events = 0
        self.timers = timers()
        #: The actions that follow from the present event, in the order to perform them.
        self._out: list[Action] = []
        self._roster = roster
        self._spec: JobSpec | None = None
        self._story: deque[tuple[float, int, Phase, str, str]] = deque(maxlen=STORY)
        self.attempt_state = AttemptState(0, 0.0, roster=roster)

    @property
    def submitted(self) -> bool:
        return self._spec is not None

    @property
    def spec(self) -> JobSpec:
        if self._spec is None:
            raise RuntimeError("the first event of a gang is JobSubmitted")
        return self._spec

    def story(self) -> list[str]:
        """Return one line for each phase transition, oldest first: time, phase, the event that caused it, and the
        reason.
        """
        return [
            f"{at:.3f} attempt {attempt} {phase} ({cause}): {why}" for at, attempt, phase, cause, why in self._story
        ]

    def this_event(self) -> str:
        """Return the kind and number of the present event, such as `agent-reported:17`; empty before the first
        event.
        """
        if self.event is None:
            return ""
        return f"{self.event.__struct_config__.tag}:{self.events}".replace("_", "-")

    def caused_by_this(self, cause: str = "") -> None:
        """Make the present event (or `cause`, if set) the recorded cause of all following actions, until the next
        call.
        """
        self.cause = cause or self.this_event()

    def move(self, trigger: PhaseTrigger, now: float, why: str) -> None:
        """Change the phase by the transition table, and add the seconds in the old phase to the attempt's time.

        Raises `InvalidTransition`, without any change, if the table has no transition for `trigger`. `why`: the reason,
        for `story`.
        """
        target = TABLE.get((self.phase, trigger))
        if target is None:
            raise InvalidTransition(self.phase, trigger, self.story())
        self.attempt_state.charge(self.phase.value.lower(), max(0.0, now - self.entered_at))
        self.phase = target
        self.entered_at = now
        self._story.append((now, self.attempt, self.phase, self.cause, why[:STORY_TEXT]))

    def count_since(self, now: float) -> None:
        """Restart the clock of the present phase at `now`."""
        self.entered_at = now

    # --------------------------------------------------------------------------- the present event and its actions

    def begin_event(self, event: ev.Event) -> None:
        self.event = event
        self.events += 1

    def end_event(self, now: float) -> list[Action]:
        """Return the actions that follow from the present event, in the order to perform them."""
        self.handled_at = now
        out, self._out = self._out, []
        return out

    def emit(self, *actions: Action) -> None:
        """Add actions to the result of the present event."""
        self._out.extend(actions)

    def count_stale(self) -> None:
        """Count a report that arrived too late to change anything."""
        self.stale_reports += 1

    # -------------------------------------------------------------------- changes of the job as a whole

    def submit(self, event: ev.JobSubmitted, now: float) -> None:
        self.job_id, self._spec, self.seed, self.run = event.job_id, event.spec, event.seed, event.run
        self._known.update((node.name, node) for node in event.nodes)
        self.due = self.entered_at = now
        self.caused_by_this()
        self.keep_out(event.kept_out, (kept.device for kept in event.kept_out))
        self.utc_offset_s = event.utc_offset_s

    def resume(self, event: ev.JobResumed) -> None:
        """Take over the new run's nodes, job specification and term.

        A stop request that only ended the previous run is done now.
        """
        self.run, self.began_after = event.run, self.highest
        self.raise_term()
        self._known.clear()
        self._known.update((node.name, node) for node in event.nodes)
        self._absent.clear()
        self._left.clear()
        self.forget_room()
        self.line, self.asked = (), None
        self._spec = event.spec or self._spec
        self.keep_out(event.kept_out, (kept.device for kept in event.kept_out))
        if self.stop is not None and self.stop.requeue:
            self.stop = None

    def raise_term(self, above: int = 0) -> None:
        """Raise the owner's term for a new owner. `above`: a term that an agent has reported; the new term is
        higher.
        """
        self.term = max(self.term, above) + 1

    def end_with(self, request: StopRequest) -> None:
        """Record the stop request that ends the job after its present attempt."""
        self.stop = request

    def ask_requeue(self, asked: PendingRequeue) -> None:
        self.asked = asked

    def count_requeue(self) -> None:
        """Count a requeue of the job for which there is no attempt's record."""
        self.unrecorded += 1

    def finish(self, report: JobReport) -> None:
        """End the job. `report`: the job's report; a job has only one."""
        self.report = report
        self.emit(FinishJob(report=report, cause=self.cause))

    # ------------------------------------------------------------------- changes of nodes and devices

    def join(self, node: NodeInfo) -> None:
        self._known[node.name] = node
        self._absent.pop(node.name, None)
        self._left.discard(node.name)

    def miss(self, node: str, why: str) -> None:
        self._absent[node] = why

    def find_again(self, node: str) -> None:
        del self._absent[node]

    def leave(self, node: str) -> None:
        """Record that the node's agent has left. The node can only be used again after a hello, the first message of a
        new agent.
        """
        self._left.add(node)

    def change_room(self, place: int, words: str) -> None:
        """Record whether the platform has room for a missing node. `words`: why it has none; empty: it has room."""
        self._no_room.pop(place, None)
        if words:
            self._no_room[place] = words

    def forget_room(self) -> None:
        """Forget which nodes the platform has no room for. The platform's watch reports that again."""
        self._no_room.clear()

    def keep_out(self, kept: Sequence[DeviceStanding], names: Iterable[str]) -> None:
        """Exclude devices from the next attempts. `kept`: the devices, with reasons; `names`: their names in the
        job.
        """
        self.kept_out += tuple(kept)
        self._avoid.update(names)

    def allow_resets(self, reset_s: float) -> None:
        """Let resets of devices delay the next attempt's checks by up to `reset_s` seconds."""
        self.reset_s = max(self.reset_s, reset_s)

    def end_resets(self) -> None:
        self.reset_s = 0.0

    # ------------------------------------------------------------------------------- changes of attempts

    def begin_attempt(self, now: float) -> None:
        """Begin an attempt with the next number. The wait before it counts towards the attempt's time."""
        self.attempt = self.highest = self.highest + 1
        waited = {"backoff": max(0.0, now - self.entered_at)}
        if self.phase is Phase.ASSEMBLING:
            waited = {"backoff": self.attempt_state.parts.get("backoff", 0.0), "assembling": waited["backoff"]}
        self._try_next(now, waited)
        self.entered_at = now

    def raise_highest(self, attempt: int) -> None:
        """Record the attempt number that a node has reported, if it is the highest so far."""
        self.highest = max(self.highest, attempt)

    def adopt_highest(self, now: float) -> None:
        """Make the attempt with the highest reported number the present one."""
        self.attempt = self.highest
        self._try_next(now, {"backoff": 0.0})

    def _try_next(self, now: float, waited: dict[str, float]) -> None:
        """Create the state of the present attempt. Nothing carries over from the previous one. `waited`: phase →
        seconds.
        """
        self.attempt_state = AttemptState(self.attempt, now, waited, roster=self._roster)

    def place_ranks(self, placements: tuple[Placement, ...]) -> None:
        """Place the attempt's ranks on `placements`, and keep the order of the nodes for the next attempt."""
        self.attempt_state.place(placements, self.addresses() if self.many else {})
        self.line = self.attempt_state.roster.nodes

    def record(self, record: AttemptRecord) -> None:
        """Add the record of the ended attempt."""
        self._records.append(record)
        self.emit(RecordAttempt(record=record, cause=self.cause))

    def decide_anew(self, decision: Decision) -> None:
        """Replace the decision after the last attempt, because the attempt that it announced never began."""
        self._records[-1] = replace(self._records[-1], decision=decision)

    def pause_until(self, due: float) -> None:
        self.due = due

    # ------------------------------------------------------------------------------------------ output and timers

    def say(self, text: str, *, cause: str = "") -> None:
        """Print one line for the user. `cause`: the event behind it; empty: the event that led to the present state."""
        self.emit(Say(text=text, cause=cause or self.cause))

    def arm(self, timer: TimerKind, due: float) -> None:
        self.timers.arm(timer, due, self.attempt, self.phase)

    def armed(self, timer: TimerKind) -> bool:
        return self.timers.armed(timer, self.attempt, self.phase)

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes that have joined, in the order of joining."""
        return tuple(self.known.values())

    @property
    def many(self) -> bool:
        """Whether the job has more than one node, or may get more."""
        return self.spec.nodes.many or len(self.known) > 1

    def addresses(self) -> dict[str, str]:
        """Return node → the address by which its peers reach it."""
        return {node.name: node.address for node in self.nodes if node.address}

    @property
    def pending(self) -> bool:
        """Whether the present attempt has a number and has not ended."""
        return self.attempt > 0 and (not self.records or self.records[-1].attempt < self.attempt)

    def ended(self) -> tuple[AttemptRecord, ...] | None:
        """Return the records of the ended attempts; None before the job has begun."""
        return tuple(self.records) if self.submitted else None

    def here(self) -> tuple[str, ...]:
        """Return the usable nodes: present, and not avoided."""
        return tuple(name for name in self.known if name not in self.absent and name not in self.avoid)

    def places(
        self, without: Collection[str] = (), among: Collection[str] | None = None
    ) -> tuple[Placement, ...] | None:
        """Return the placement of every rank; None if too few nodes or devices are left. `without`: further nodes and
        devices to avoid. `among`: the only nodes to use; None: all.
        """
        avoid = {*self.avoid, *without} if without else self.avoid
        if not self.many:
            return place(self.spec, self.nodes, avoid)
        nodes = self.line_up(avoid, among)
        return place(self.spec, nodes, avoid) if nodes else None

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        """Return the nodes of the next attempt, in the order of their ranks; empty if there are too few. `avoid`: nodes
        and devices not to use. `among`: the only nodes to use; None: all.
        """
        out = set(self.absent)
        if among is not None:
            out.update(name for name in self.known if name not in among)
        return line_up(self.spec, self.nodes, avoid, out, self.line)

    def names_on(self, node: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names in the job of a node's devices: `gpu-2/npu0` for `npu0`.

        On a single machine these names are equal.
        """
        return on_node(self.known.get(node) if self.many else None, names)

    def where(self, names: Sequence[str]) -> tuple[str, ...]:
        """Convert a report's device names, such as `gpu3` on its node, to names that are unique in the job."""
        found = self.attempt_state.found
        first = found.report.first if found is not None else None
        nodes = {fault.event.device: fault.event.node for fault in self.attempt_state.faults}
        at = first.node if first is not None else ""
        return tuple(each for name in names for each in self.names_on(nodes.get(name, at), (name,)))

    def node_of(self, name: str) -> str:
        """Return the node of an avoided name, which is the name of a node or of a device; empty if unknown."""
        if name in self.known:
            return name
        node, device, _ = name.partition("/")
        if device and node in self.known:
            return node
        on = (each.name for each in self.known.values() if name in each.devices)
        return next(on, "")

    def ports_to_ask(self) -> dict[str, int]:
        """Return node → the number of ports that it must reserve, if the next attempt runs on the present nodes."""
        if not self.spec.tells_peers:
            return {}
        return ports_needed(self.spec, self.places() or ())

    def first_node(self) -> str:
        """Return the node that would get rank 0 now; empty if the usable nodes are too few."""
        nodes = self.line_up(self.avoid)
        return nodes[0].name if nodes else ""

    def leave_out(self, names: Sequence[str], reason: str) -> None:
        fresh = tuple(name for name in names if name not in self.avoid)
        if fresh:
            self._avoid.update(fresh)
            self.emit(Avoid(names=fresh, reason=reason, cause=self.cause))

    def lease_s(self) -> float:
        """Return the length of a lease in seconds. After such a silence the node has no live process of the job."""
        timers = self.spec.timers
        return timers.lease_s + timers.drift_s + timers.beat_s
