"""Hosts the real Owner in the simulation: its journal, its network, its actions, its crashes and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.decide.queries.answer_collection import AnswerCollection, parts
from holdfast.model import events as ev
from holdfast.model.actions import (
    Action,
    Avoid,
    CollectEvidence,
    FinishJob,
    RecordAttempt,
    Requeue,
    RunChecks,
    RunHooks,
    Say,
    Secure,
    Send,
)
from holdfast.model.check_results import CheckState
from holdfast.model.codec import decode_event, encode
from holdfast.model.decisions import JobReport
from holdfast.model.evidence import AttemptEvidence, CheckFailure, HangEvidence, MemoryKill, StopRequest
from holdfast.model.gang_protocol import Command, Meeting, Report
from holdfast.model.job_spec import NodeInfo
from holdfast.wire.message_ages import aged, dated
from holdfast_testing.node_seating import reserved
from holdfast_testing.simulated_platform import SimulatedPlatform
from holdfast_testing.simulated_processes import Work
from holdfast_testing.simulated_world import Network, Violation, World
from holdfast_testing.trouble_plan import Crash, Plan

if TYPE_CHECKING:
    from holdfast_testing.simulated_node import Machine
    from holdfast_testing.witness import Witness

#: Seconds until a written event of the journal is safe on the disk.
SECURE_S = 0.005
#: Seconds that reading the logs of a drained attempt takes.
COLLECT_S = 0.02


class OwnerHost:
    """The machine of the job's owner, with a simulated journal, network, checks and crashes.

    `world`, `network`, `witness`: parts of the simulation. `machines`: the nodes by name. `work`: the job's saved work.
    `make_owner`: creates an owner for a plan.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        machines: dict[str, Machine],
        witness: Witness,
        work: Work,
        *,
        make_owner: Callable[[Plan], Owner],
    ) -> None:
        self.world = world
        self.network = network
        self.machines = machines
        self.witness = witness
        self.work = work
        self.make_owner = make_owner
        self.platform = SimulatedPlatform(world, machines, self)
        self.journal: list[tuple[float, ev.Event]] = []
        self.history: list[list[Action]] = []
        #: The number of events in the journal that survive a power cut.
        self.secured = 1
        self.owner = make_owner(world.plan)
        self.roundup = AnswerCollection()
        self.alive = True
        self.life = 1
        self.rounds = 0
        self.finished: JobReport | None = None
        self._wake: float | None = None
        self._dies_acting = False

    @property
    def gang(self) -> Gang:
        return self.owner.gang

    # ------------------------------------------------------------------------------------------ events in

    def submit(self) -> None:
        plan = self.world.plan
        nodes = () if plan.joins else plan.nodes
        self.take(ev.JobSubmitted(job_id=f"sim-{plan.seed}", spec=plan.spec, nodes=nodes, seed=plan.seed))

    def take(self, event: ev.Event) -> None:
        """Append the event to the journal, handle it, and carry out the actions."""
        if not self.alive:
            return
        now, gang = self.world.now, self.gang
        self.journal.append((now, event))
        before, attempt = gang.phase, gang.attempt
        self.owner.expect(event, now)
        actions = gang.handle(event, now)
        self.history.append(actions)
        self.witness.moved(gang, event, before, attempt, actions)
        if self._dies_acting:
            # The owner has written the event, and dies before it can carry out the actions for it.
            self._dies_acting = False
            self._fall()
            return
        for action in actions:
            self._act(action)
        self._arm()

    def hello(self, joined: ev.NodeJoined, machine: Machine) -> None:
        """Handle the hello of an agent that connects to the owner."""
        if not self.alive or not self.gang.submitted:
            return
        event = self.owner.welcome(joined)
        if event is not None:
            self.witness.heard(machine.name, joined.boot)
            self.take(event)
        if self.alive:
            self.network.carry(machine.name, machine.welcomed, joined.boot)
            self._arm()

    def hello_of_before(self, joined: ev.NodeJoined, run: int) -> None:
        """Handle the hello of an agent of an earlier run, if `run` is still the present one."""
        if self.alive and self.platform.run == run and (event := self.owner.welcome(joined)) is not None:
            self.take(event)

    def left(self, left: ev.NodeLeft) -> None:
        """Handle the last message of an agent, which leaves the job."""
        if self.alive:
            self.take(left)

    def room_changed(self, place: int, words: str) -> None:
        """Handle what the platform says of its room for a missing node."""
        if self.alive and not self.platform.between:
            self.take(ev.RoomChanged(place=place, words=words))

    def report(self, report: Report) -> None:
        """Let the owner handle a report that arrives."""
        if not self.alive or (self.world.plan.joins and report.boot > self.gang.agents.boots.get(report.node, 0)):
            return  # the owner has not admitted the agent
        self.witness.heard(report.node, report.boot, report.attempt)
        event = self.owner.hear(report, self.world.now)
        if event is not None:
            self.take(event)
        if self.alive:
            for action in self.owner.answer(report):
                self._act(action)
            self._arm()

    def ask_to_stop(self, request: StopRequest) -> None:
        if self.alive:
            self.witness.asked_to_stop(request)
            self.take(ev.StopRequested(request=replace(request, at=self.world.now)))

    def found_hang(self, attempt: int, rank: int, since: float) -> None:
        """Report a hang to the owner; while the owner is away or the attempt starts, try again each second."""
        if not self.alive or (self.gang.attempt == attempt and self.gang.phase is Phase.STARTING):
            self.world.after(1.0, self.found_hang, attempt, rank, since)
        elif self.gang.attempt == attempt and self.gang.phase is Phase.RUNNING:
            silent_s = self.world.now - since
            why = f"rank {rank} stands while the others wait for it"
            hang = HangEvidence(attempt=attempt, silent_s=silent_s, culprits=(rank,), why=why, at=self.world.now)
            self.take(ev.HangFound(attempt=attempt, evidence=hang))

    def _awake(self, when: float, life: int) -> None:
        if self._wake != when or life != self.life or not self.alive:
            return
        self._wake = None
        self._take_due(self.world.now)
        self._arm()

    def _take_due(self, now: float) -> None:
        for whole in self.roundup.due(now):
            self._understand(whole)
            if not self.alive:
                return
        for event in self.owner.due(now):
            before = self.gang.attempt, self.gang.phase
            self.take(event)
            if not self.alive:
                return
            again = self.gang.next_wake()
            still = before == (self.gang.attempt, self.gang.phase)
            if isinstance(event, ev.Tick) and again is not None and again <= now and still:
                raise Violation("I6", "the gang asks to be woken at a moment that has passed")

    def _arm(self) -> None:
        if not self.alive or self.finished is not None:
            return
        wakes = (self.owner.next_wake(), self.roundup.next_wake())
        when = min((wake for wake in wakes if wake is not None), default=None)
        if when is None:
            return
        when = max(when, self.world.now)
        if self._wake is None or when < self._wake:
            self._wake = when
            self.world.at(when, self._awake, when, self.life)

    # ------------------------------------------------------------------------------------------ actions out

    def send(self, node: str, command: Command) -> None:
        self.network.carry(node, self.machines[node].obey, command)

    def _act(self, action: Action) -> None:
        world = self.world
        match action:
            case Send():
                self.witness.sending(self.gang, action)
                self.send(action.node, action.command)
            case RunChecks():
                self._check(action)
            case Secure():
                world.after(SECURE_S, self._secured, action.attempt, self.life)
            case CollectEvidence():
                took_s = world.plan.collect_s.get(action.attempt, COLLECT_S)
                if took_s < float("inf"):
                    world.after(took_s, self._collected, action.attempt, action.evidence, self.life)
            case RunHooks():
                world.after(COLLECT_S, self._hooks_ran, action, self.life)
            case RecordAttempt():
                self.witness.recorded(action.record)
            case FinishJob():
                self.finished = action.report
                self.witness.finished(action.report)
            case Requeue():
                self.platform.requeue(action)
            case Say():
                world.say("owner", action.text)
            case Avoid():
                self.witness.avoiding(action.names)
            case _:
                assert_never(action)

    def _check(self, order: RunChecks) -> None:
        world, plan = self.world, self.world.plan
        self.rounds += 1
        bad = plan.bad_checks.get(self.rounds)
        state, failure, fatal = CheckState.PASS, None, False
        avoid: tuple[str, ...] = ()
        if bad is not None:
            if bad.silent:
                return
            failure = CheckFailure(check="simulated", message="a simulated check failed", nodes=bad.avoid)
            state, avoid, fatal = CheckState.FAIL, bad.avoid, bad.fatal
        port = 1000 * order.attempt + order.round
        meeting = Meeting(address=order.meet_on, port=port) if order.meet_on else None
        answer = ev.ChecksFinished(
            attempt=order.attempt,
            round=order.round,
            state=state,
            failure=failure,
            avoid=avoid,
            fatal=fatal,
            meeting=meeting,
            ports={node: reserved(order.attempt, count) for node, count in order.ports.items()},
        )
        world.after(plan.check_s, self._answer, answer, self.life)
        if plan.duplicate:
            world.after(plan.check_s * 2 + plan.very_late_s * world.dice.random(), self._answer, answer, self.life)

    def _answer(self, answer: ev.ChecksFinished, life: int) -> None:
        if life == self.life:
            self.take(answer)

    def _secured(self, attempt: int, life: int) -> None:
        if life != self.life or not self.alive:
            return
        now = self.world.now
        trouble = any(start <= now < end for start, end in self.world.plan.journal_troubles)
        if not trouble and not self.world.plan.lying_disk:
            self.secured = len(self.journal)
        self.take(ev.JournalSecured(attempt=attempt, trouble="the disk is full" if trouble else ""))

    def _hooks_ran(self, order: RunHooks, life: int) -> None:
        if life == self.life and self.alive:
            self.take(ev.HooksFinished(attempt=order.attempt, cause=order.cause))

    def _collected(self, attempt: int, evidence: AttemptEvidence, life: int) -> None:
        if life != self.life or not self.alive:
            return
        step = self.work.step(self.world.plan)
        if step is not None:
            evidence = replace(evidence, workers=tuple(replace(worker, last_step=step) for worker in evidence.workers))
        question = CollectEvidence(attempt=attempt, evidence=evidence)
        if self.world.plan.local or not self.gang.is_asked_for(
            ev.EvidenceCollected(attempt=attempt, evidence=evidence)
        ):
            kills = tuple(
                dated(aged(kill, machine.local(self.world.now)), self.world.now)
                for machine in self.machines.values()
                for kill in self.memory_kills(machine, attempt)
            )
            self._understand(ev.EvidenceCollected(attempt=attempt, evidence=replace(evidence, memory_kills=kills)))
            return
        self.roundup.ask(question, self.world.now)
        for node, part in parts(question):
            self._answered(self.machines[node], part)
        self._arm()

    def _answered(self, machine: Machine, part: CollectEvidence) -> None:
        """Add the node's kernel messages to the evidence, with times of the node's clock, as they arrive over the
        network.

        A node that is down adds nothing.
        """
        if not machine.alive or not self.alive:
            return
        now = self.world.now
        asked = dated(aged(part, now), machine.local(now)).evidence
        seen = replace(asked, memory_kills=self.memory_kills(machine, part.attempt))
        answer = dated(aged(ev.EvidenceCollected(attempt=part.attempt, evidence=seen), machine.local(now)), now)
        whole = self.roundup.hear(machine.name, answer, now)
        if whole is not None:
            self._understand(whole)

    def _understand(self, whole: ev.Event) -> None:
        if isinstance(whole, ev.EvidenceCollected) and self.gang.is_asked_for(whole):
            self.witness.evidence(whole.evidence)
        self.take(whole)

    def memory_kills(self, machine: Machine, attempt: int) -> tuple[MemoryKill, ...]:
        """Return the memory kills in the node's kernel log, with times of the node's clock."""
        return tuple(kill for number, kill in machine.memory_kills if number == attempt)

    # ------------------------------------------------------------------------------------------ dying and coming back

    def crash(self, crash: Crash) -> None:
        """Let the owner die: at once, or by chance after it has written its next event and before it acts on it."""
        if not self.alive or self.finished is not None:
            return
        self.world.after(crash.away_s, self.recover, self.life)
        if self.world.plan.lose_actions and self.world.dice.random() < 0.5:
            self._dies_acting = True
        else:
            self._fall()

    def _fall(self) -> None:
        self.world.say("owner", "crashes")
        self.alive = False
        self._wake = None

    def end_run(self) -> None:
        """Let the platform kill the owner, which does not come back in the same run."""
        self.life += 1
        self._dies_acting = False
        self._fall()

    def resume(self, run: int, nodes: tuple[NodeInfo, ...]) -> None:
        """Start the owner of the next run, which takes the journal over."""
        self._replay_journal()
        self.witness.resumed(self.gang)
        self.take(ev.JobResumed(platform="job 7", run=run, reason=f"the platform begins run {run}", nodes=nodes))

    def recover(self, life: int) -> None:
        """Restart the owner: a new gang replays the journal, and waits for each agent's report before it trusts its
        state."""
        if life != self.life:
            return
        self._replay_journal()
        if self.world.plan.joins:
            for machine in self.machines.values():
                self.world.after(self.world.dice.random(), machine.redial)
        self.take(ev.OwnerRecovered())

    def _replay_journal(self) -> None:
        self._dies_acting = False
        kept = max(self.secured, len(self.journal) - self.world.plan.lose_tail)
        if kept < len(self.journal):
            self.world.say("owner", f"has lost the last {len(self.journal) - kept} events")
            del self.journal[kept:], self.history[kept:]
            self.witness.tail_lost = True
        self.life += 1
        self.alive = True
        self._wake = None
        self.world.say("owner", f"is back and replays {len(self.journal)} events")
        self.owner = self.make_owner(self.world.plan)
        self.roundup = AnswerCollection()
        written = [(now, decode_event(encode(event))) for now, event in self.journal]
        for index, actions in enumerate(self.owner.recover(written, self.world.now)):
            self.witness.replayed(index, actions, self.history[index])
        self.witness.came_back(self.gang)

    def replay(self) -> None:
        """Replay the whole journal in a new gang, which must give the same actions again."""
        gang = self.make_owner(self.world.plan).gang
        for index, (now, event) in enumerate(self.journal):
            self.witness.replayed(index, gang.handle(event, now), self.history[index])
