"""One simulation: the real gang, agents, explanation and recovery in the world of a plan, judged at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner, acknowledge
from holdfast.decide.phases import Phase
from holdfast.decide.recovery.recovery import CHARGED
from holdfast.explain.logs import row_matcher
from holdfast.model.decisions import AttemptRecord, DecisionKind, JobReport
from holdfast.model.exit_report import Blame, Outcome, Rerun
from holdfast.model.gang_protocol import Ack, Report
from holdfast.model.phrases import Phrase
from holdfast_testing.simulated_node import Machine
from holdfast_testing.simulated_owner import OwnerHost
from holdfast_testing.simulated_processes import Rooms
from holdfast_testing.simulated_world import Network, Violation, World
from holdfast_testing.trouble_plan import Plan
from holdfast_testing.witness import Witness


@dataclass(frozen=True)
class Parts:
    """The parts of a simulation; a mutant replaces one of them by a broken one."""

    gang: Callable[[], Gang] = Gang
    agent: Callable[..., Agent] = Agent
    liveness: Callable[..., Liveness] = Liveness
    host: Callable[..., OwnerHost] = OwnerHost
    owners: type[Owner] = Owner
    acknowledge: Callable[[Gang, Report], Ack] = acknowledge

    def owner(self, plan: Plan) -> Owner:
        """Return a new owner, made from these parts."""
        liveness = None if plan.local else self.liveness(plan.spec.timers)
        return self.owners(self.gang(), liveness, acknowledge=self.acknowledge)


@dataclass
class Ran:
    """The result of a simulation that broke no invariant."""

    plan: Plan
    phase: Phase
    report: JobReport | None
    attempts: int
    events: int
    simulated_s: float
    witness: Witness
    story: list[str] = field(default_factory=list)


def _free(record: AttemptRecord) -> bool:
    planned = record.signs or record.report.phrase == Phrase.TIME_LIMIT_REACHED
    return bool(planned) and record.decision.kind is DecisionKind.REQUEUE and not record.decision.charged


def warm() -> None:
    """Load the catalogue once, before thousands of exits are explained."""
    row_matcher.built_in()


class Simulation:
    """All parts of one simulation. `run` runs it to its end and judges it.

    `plan`: the job and its troubles. `parts`: the real parts, or broken ones; None: the real parts. `tracing`: keep a
    trace of everything that happens.
    """

    def __init__(self, plan: Plan, parts: Parts | None = None, *, tracing: bool = False) -> None:
        parts = parts or Parts()
        self.plan = plan
        self.world = World(plan, tracing=tracing)
        self.network = Network(self.world)
        self.witness = Witness(self.world)
        self.rooms = Rooms(self.world, self.witness)
        self.machines: dict[str, Machine] = {}
        self.owner = parts.host(
            self.world, self.network, self.machines, self.witness, self.rooms.work, make_owner=parts.owner
        )
        for node in plan.nodes:
            self.machines[node.name] = Machine(
                node,
                self.world,
                self.network,
                self.rooms,
                self.witness,
                self.owner.report,
                parts.agent,
                dial=self.owner.hello,
                leave=self.owner.left,
            )
        self._schedule()

    def _schedule(self) -> None:
        world, plan = self.world, self.plan
        world.at(0.0, self.owner.submit)
        for name, at in plan.joins.items():
            if at < float("inf"):
                world.at(at, self.machines[name].power_back)
        for leave in plan.leaves:
            world.at(leave.at, self.machines[leave.node].leave)
            if leave.back is not None:
                world.at(leave.back, self.machines[leave.node].power_back)
        for at, place, words in plan.rooms:
            world.at(at, self.owner.room_changed, place, words)
        for outage in plan.outages:
            world.at(outage.start, self.machines[outage.node].lose_power)
            if outage.end is not None:
                world.at(outage.end, self.machines[outage.node].power_back)
        for crash in plan.agent_crashes:
            world.at(crash.at, self.machines[crash.node].lose_agent, crash)
        for crash in plan.owner_crashes:
            world.at(crash.at, self.owner.crash, crash)
        for when, request in plan.stops:
            world.at(when, self.owner.ask_to_stop, request)
        for when in plan.platform.ends if plan.platform is not None else ():
            world.at(when, self.owner.platform.end_by_itself)
        hang_s = plan.spec.hang_timeout_s
        if hang_s is not None:
            self.rooms.on_hang = lambda attempt, rank: world.after(
                hang_s, self.owner.found_hang, attempt, rank, world.now
            )

    def run(self) -> Ran:
        """Play the simulation. Raises `Violation` for the first broken invariant."""
        try:
            self.world.run(self.plan.horizon_s, self._over)
        except Violation:
            raise
        except Exception as bug:  # any exception in the gang or an agent is a finding
            raise Violation("bug", f"{type(bug).__name__}: {bug}") from bug
        self._judge()
        self.owner.replay()
        return Ran(
            plan=self.plan,
            phase=self.owner.gang.phase,
            report=self.owner.finished,
            attempts=self.owner.gang.attempt,
            events=self.world.events,
            simulated_s=self.world.now,
            witness=self.witness,
            story=self.world.story,
        )

    def _over(self) -> bool:
        return self.owner.finished is not None and not any(self.witness.live.values())

    def _judge(self) -> None:
        """Check the conditions that must hold at the end of the simulation."""
        gang, witness, plan = self.owner.gang, self.witness, self.plan
        live = sorted(rank for ranks in witness.live.values() for rank in ranks)
        if gang.phase is Phase.RUNNING and not plan.work_s:
            if len(live) < len(gang.attempt_state.roster.placements):
                raise Violation("I6", f"RUNNING at the end, but only ranks {live} live")
        elif gang.phase is not Phase.DONE or self.owner.finished is None:
            raise Violation("I6", f"still {gang.phase} in attempt {gang.attempt} at {self.world.now:.0f} s")
        elif live:
            raise Violation("I6", f"the job is done, and ranks {live} still live")
        if plan.quiet and (gang.attempt != 1 or (plan.work_s and not self._succeeded())):
            raise Violation("I8", f"nothing was wrong, and it took {gang.attempt} attempts")
        self._judge_budget()
        if self.owner.finished is not None:
            self._judge_report(self.owner.finished)

    def _succeeded(self) -> bool:
        return self.owner.finished is not None and self.owner.finished.outcome is Outcome.SUCCEEDED

    def _judge_budget(self) -> None:
        gang, policy = self.owner.gang, self.plan.spec.restarts
        follow = (DecisionKind.RESTART, DecisionKind.REPLACE, DecisionKind.REQUEUE)
        again = [record for record in gang.records if record.decision.kind in follow]
        grown = [record for record in again if record.report.phrase == Phrase.RESIZED]
        if any(record.decision.charged for record in grown):
            raise Violation("I4", "to grow is no failure, and it is charged")
        attempts = 1 + len(again)
        again = [record for record in again if record not in grown]
        # Each attempt that reported a higher step restores the user's restart budget; nothing else does. The budget
        # within the time window is never restored.
        charged = most = 0
        furthest = -1
        for record in again:
            step = self._told(record.attempt)
            charged = record.decision.charged + (0 if step > furthest else charged)
            most, furthest = max(most, charged), max(furthest, step)
        # Restarts by the platform itself cost budget but are never refused.
        # Another run after a planned time limit or after progress costs none.
        paid = [record for record in again if record.attempt not in self.witness.cut_short and not _free(record)]
        uncharged = sum(not record.decision.charged for record in paid)
        if most > policy.max_restarts or uncharged > policy.platform_max_restarts:
            raise Violation("I4", f"{most} restarts charged, {uncharged} not; the budget is smaller")
        again = [record for record in again if record.decision.kind is not DecisionKind.REQUEUE]
        for record in again:
            since = record.ended_at - policy.window_s
            within = sum(since <= other.ended_at <= record.ended_at for other in again)
            if within > policy.window_restarts:
                raise Violation("I4", f"{within} restarts; the window allows {policy.window_restarts}")
        if gang.attempt > attempts and not self.witness.tail_lost:
            raise Violation("I4", f"{gang.attempt} attempts after {attempts - 1} decisions to restart")
        for record in again:
            if record.decision.charged != (record.report.blame in CHARGED):
                raise Violation("I4", f"attempt {record.attempt}: the wrong budget pays for {record.report.blame}")

        for before, record in itertools.pairwise(again):
            judged = record.report.blame in CHARGED and record.report.rerun is Rerun.UNKNOWN
            same = record.report.fingerprint and record.report.fingerprint == before.report.fingerprint
            if judged and same and not record.signs and record.decision.kind is DecisionKind.RESTART:
                raise Violation("I4", f"attempt {record.attempt} failed as the one before, and is followed by another")

    def _told(self, attempt: int) -> int:
        """Return the step that this attempt's workers reported; -1 if they reported none."""
        evidence = self.witness.evidences.get(attempt)
        steps = [worker.last_step for worker in evidence.workers if worker.last_step is not None] if evidence else []
        return min(steps, default=-1)

    def _judge_report(self, job: JobReport) -> None:
        gang = self.owner.gang
        numbers = [record.attempt for record in job.attempts]
        if self.witness.tail_lost:
            if numbers != sorted(set(numbers)):
                raise Violation("report", f"{gang.attempt} attempts, and reports of {numbers}")
        elif numbers != list(range(1, len(numbers) + 1)) or len(numbers) not in (gang.attempt, gang.attempt - 1):
            raise Violation("report", f"{gang.attempt} attempts, and reports of {numbers}")
        ended = set(self.witness.ended)
        if ended != set(numbers):
            raise Violation("report", f"attempts {sorted(ended)} ended, and the job tells of {numbers}")
        if not job.attempts:
            return
        last = job.attempts[-1]
        stopped = job.report.blame is Blame.OPERATOR or self.witness.requests or self.plan.spec.time_limit_s
        if not stopped and job.report != last.report:
            raise Violation("report", f"the last cause was {last.report.phrase}, and the job tells {job.report.phrase}")
        if last.decision.kind is DecisionKind.FAIL and job.outcome is Outcome.SUCCEEDED:
            raise Violation("report", "a failed job counts as succeeded")
