"""The witness of a simulation: it sees what really happens, and raises `Violation` when an invariant breaks.

It knows the truth (which processes live, the cause of each death, which nodes could be reached) and compares it with
the actions of owner and agents. `docs/internals/gang.md` defines the names I1 … I12.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.decide.attempt_ending import AGAIN
from holdfast.decide.gang import Gang
from holdfast.decide.phases import LIVE, TABLE, Phase
from holdfast.model import events as ev
from holdfast.model.actions import Action, Send
from holdfast.model.decisions import AttemptRecord, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, Deadline, StopRequest, StopSource
from holdfast.model.gang_protocol import Go, MemberState, Prepare, Report
from holdfast.model.job_spec import Placement
from holdfast.model.phrases import Phrase
from holdfast_testing.attempt_truth import Truth
from holdfast_testing.node_seating import RefillWait, Seating
from holdfast_testing.restart_pauses import HAIR, kept_pause
from holdfast_testing.simulated_world import Violation, World

EDGES = frozenset((source, target) for (source, _), target in TABLE.items())
TIMED = frozenset(Phase) - {Phase.RUNNING, Phase.DONE}


class Witness:
    """Watches one job. The simulated world calls its methods as things happen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seating = Seating(world)
        self.truths: dict[int, Truth] = {}
        self.live: dict[int, set[int]] = {}
        self.highest = 0
        self.avoided: set[str] = set()
        self.records: dict[int, AttemptRecord] = {}
        self.report: JobReport | None = None
        self.moves: set[tuple[Phase, Phase]] = set()
        self.last_heard: dict[str, float] = {}
        #: (node, attempt) → when a report about the attempt last arrived. A copy of an older report may arrive late.
        self.spoke_at: dict[tuple[str, int], float] = {}
        self.boots: dict[str, int] = {}
        self.fell: dict[str, tuple[float, str]] = {}
        self.requests: list[StopRequest] = []
        self.back_at: float | None = None
        self.back_in: set[Phase] = set()  # phases of the gang in which the owner came back after a crash
        self.entered_at = 0.0
        self.evidences: dict[int, AttemptEvidence] = {}
        self.began: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        #: Whether the owner's journal has lost its end: later events are forgotten, and may be decided again.
        self.tail_lost = False
        #: The number of runs of the job after the first.
        self.runs = 0
        #: Attempts that ended because their run of the job ended.
        self.cut_short: set[int] = set()
        #: The highest attempt for which a PREPARE was sent.
        self.used = 0

    def truth(self, attempt: int) -> Truth:
        if attempt not in self.truths:
            self.truths[attempt] = Truth()
        return self.truths[attempt]

    # ------------------------------------------------------------------------------------------ processes

    def started(self, attempt: int, placement: Placement, boot: int) -> None:
        rank = placement.rank
        for other, ranks in self.live.items():
            if other != attempt and ranks:
                raise Violation(
                    "I1", f"attempt {attempt} starts rank {rank} while ranks {sorted(ranks)} of {other} live"
                )
        mine = self.live.setdefault(attempt, set())
        if rank in mine:
            raise Violation("I1", f"two processes of rank {rank} in attempt {attempt}")
        if self.truth(attempt).started_by.get(rank, 0) >= boot:
            # Only a new agent, with a higher boot number, may start the same rank again: the earlier agent's processes
            # died with it.
            raise Violation("I1", f"rank {rank} is started a second time in attempt {attempt}")
        if taken := {placement.node, placement.device} & self.avoided:
            raise Violation("avoid", f"rank {rank} of attempt {attempt} is placed on {', '.join(sorted(taken))}")
        mine.add(rank)
        self.truth(attempt).started_by[rank] = boot
        self.truth(attempt).nodes.setdefault(placement.node, []).append(rank)

    def could_not_start(self, attempt: int, rank: int) -> None:
        self.truth(attempt).deaths[rank] = "own"
        self.truth(attempt).died_at[rank] = self.world.now

    def prepared(self, attempt: int, rank: int) -> None:
        self.truth(attempt).prepared.add(rank)

    def released(self, attempt: int, rank: int) -> None:
        size = self.truth(attempt).size
        if len(self.truth(attempt).prepared) < size:
            raise Violation("I3", f"rank {rank} of attempt {attempt} is let go before all {size} are prepared")

    def up(self, attempt: int, rank: int) -> None:
        self.truth(attempt).up.add(rank)

    def died(self, attempt: int, rank: int, cause: str) -> None:
        self.live.get(attempt, set()).discard(rank)
        truth = self.truth(attempt)
        truth.deaths[rank] = cause
        truth.died_at[rank] = self.world.now

    def dying(self, attempt: int, rank: int) -> None:
        self.truth(attempt).dying_at[rank] = self.world.now

    def killed_for_memory(self, attempt: int, rank: int) -> None:
        self.truth(attempt).out_of_memory.add(rank)

    def signalled(self, attempt: int, node: str) -> None:
        self.truth(attempt).signalled.setdefault(node, self.world.now)

    def fell_ill(self, attempt: int, placement: Placement, what: str) -> None:
        self.truth(attempt).ills.append((self.world.now, what, (placement.rank,), placement.node))

    def node_fell(self, node: str, why: str) -> None:
        self.fell[node] = (self.world.now, why)
        for attempt, ranks in self.live.items():
            truth = self.truth(attempt)
            if lost := tuple(rank for rank in truth.nodes.get(node, ()) if rank in ranks):
                truth.ills.append((self.world.now, why, lost, node))

    def heard(self, node: str, boot: int, attempt: int | None = None) -> None:
        if attempt is not None:
            self.spoke_at[node, attempt] = self.world.now
        if boot >= self.boots.get(node, 0):
            self.boots[node] = boot
            self.last_heard[node] = self.world.now

    def asked_to_stop(self, request: StopRequest) -> None:
        self.requests.append(request)

    def avoiding(self, names: tuple[str, ...]) -> None:
        self.avoided.update(names)

    # ------------------------------------------------------------------------------------------ the owner's steps

    def moved(self, gang: Gang, event: ev.Event, before: Phase, attempt: int, actions: list[Action]) -> None:
        """Check the gang after an event that the owner has handled."""
        if gang.attempt != attempt:
            self._new_attempt(gang, attempt)
        if gang.phase is not before:
            self._crossed(gang, before)
        self.seating.moved(gang, event, before, attempt)
        if gang.phase in TIMED and gang.next_wake() is None:
            raise Violation("I6", f"phase {gang.phase} of attempt {gang.attempt} has no timer")
        if isinstance(event, ev.AgentReported) and before in LIVE:
            self._first_word(gang, event.report)
        elif isinstance(event, ev.NodeSilent | ev.NodeFenced) and not gang.agents.speaks(event.node, event.boot):
            raise Violation("boot", f"{event.node} is judged as of boot {event.boot}, and it is another's turn")

    def _new_attempt(self, gang: Gang, before: int) -> None:
        now, number = self.world.now, gang.attempt
        if self.tail_lost and gang.phase is Phase.DRAINING:
            return  # an agent reported this attempt, which only has to be stopped
        if number <= self.highest or (number != before + 1 and not self.tail_lost):
            raise Violation("I7", f"attempt {number} begins after attempt {max(before, self.highest)}")
        self.highest = number
        self.began[number] = now
        for other, ranks in self.live.items():
            # If the journal lost its end, the owner learns of these ranks before it uses the attempt's number.
            if ranks and not self.tail_lost:
                raise Violation("I1", f"attempt {number} begins while ranks {sorted(ranks)} of attempt {other} live")
        if number > 1:
            kept_pause(gang, number, now)

    def _crossed(self, gang: Gang, before: Phase) -> None:
        attempt, now, after = gang.attempt, self.world.now, gang.phase
        entered, self.entered_at = self.entered_at, now
        self.world.say("owner", f"{before} → {after} (attempt {attempt})")
        for edge in _path(before, after):
            self.moves.add(edge)
        truth = self.truth(attempt)
        if after is Phase.PREPARING:
            truth.size = len(gang.attempt_state.roster.placements)
            self.seating.placed(gang)
        if after is Phase.RUNNING and len(truth.up) < truth.size:
            late = sorted(set(range(truth.size)) - truth.up)
            raise Violation("I12", f"attempt {attempt} is RUNNING while ranks {late} never came up")
        if after is Phase.DRAINING:
            again = self.tail_lost and truth.stopped_at is not None
            truth.stopped_at = now
            if again:
                pass  # the owner has forgotten its stop, but the agents have not
            elif gang.attempt_state.completed:
                self._complete(gang)
            else:
                self._justified(gang, before, entered)

    def _complete(self, gang: Gang) -> None:
        deaths, ranks = self.truth(gang.attempt).deaths, gang.attempt_state.roster.members
        if any(role.completion.min_succeeded is not None for role in gang.spec.roles):
            return
        if failed := [rank for rank in ranks if deaths.get(rank, "done") not in ("done", "own", "peer")]:
            raise Violation("I2", f"attempt {gang.attempt} counts as complete, but ranks {failed} were stopped")

    def _justified(self, gang: Gang, before: Phase, entered: float) -> None:
        """Check I2 and I11: only a real trouble, the gang's own timers or a request may end an attempt."""
        attempt_state, truth, attempt, now = gang.attempt_state, self.truth(gang.attempt), gang.attempt, self.world.now
        timers = gang.spec.timers
        why: list[str] = []
        if attempt_state.stop is not None:
            if any(request.reason == attempt_state.stop.reason for request in self.requests):
                return
            if attempt_state.stop.source is StopSource.TIME_LIMIT and now >= (gang.spec.time_limit_s or 0.0) - HAIR:
                return
            if attempt_state.stop.source is StopSource.PLATFORM and attempt_state.resumed and self.runs == gang.run:
                return
            if attempt_state.stop.source is StopSource.GROWTH and set(gang.here()) - set(attempt_state.roster.nodes):
                return
            if attempt_state.stop.source is StopSource.SUPERVISOR and self.tail_lost:
                return
            if attempt_state.stop.source is StopSource.JOURNAL and now - entered >= timers.owner_wait_s - HAIR:
                return
            why.append("a stop request that was not made")
        if attempt_state.hang is not None:
            if any(what == "hang" for _, what, _, _ in truth.ills):
                return
            why.append("a hang that is none")
        if attempt_state.deadline:
            limit = timers.prepare_s if attempt_state.deadline is Deadline.PREPARE else timers.start_s
            if now - entered >= limit - HAIR:
                return
            why.append(f"its {attempt_state.deadline} deadline after {now - entered:.3f} s instead of {limit:g} s")
        for node in attempt_state.lost:
            if self._lost(node, attempt):
                return
            why.append(f"the loss of {node}, which was heard {now - self.last_heard.get(node, 0.0):.3f} s ago")
        for known in gang.attempt_state.roster.failed():
            rank = known.placement.rank
            if truth.deaths.get(rank) in ("own", "peer"):
                return
            why.append(f"the failure of rank {rank}, whose process {truth.deaths.get(rank) or 'lives'}")
        name = "I11" if self.back_at is not None and now - self.back_at <= 2 * timers.lease_s else "I2"
        raise Violation(name, f"attempt {attempt} is stopped in {before} by {'; '.join(why) or 'nothing at all'}")

    def _lost(self, node: str, attempt: int) -> bool:
        """Return whether the owner has reason to count this node as lost in this attempt."""
        now, began = self.world.now, self.began.get(attempt, 0.0)
        lease_s = self.world.plan.spec.timers.lease_s
        if now - self.last_heard.get(node, 0.0) >= lease_s - HAIR:
            return True
        back_s = now - self.back_at if self.back_at is not None else 0.0
        if back_s >= lease_s - HAIR and now - self.spoke_at.get((node, attempt), 0.0) >= lease_s - HAIR:
            return True
        fell_at, _ = self.fell.get(node, (-1.0, ""))
        if fell_at >= began:
            return True
        mine = self.truth(attempt)
        return any(mine.deaths.get(rank) == "stop" for rank in mine.nodes.get(node, ()))

    def _first_word(self, gang: Gang, report: Report) -> None:
        truth = self.truth(gang.attempt)
        if truth.first_heard is None and report.attempt == gang.attempt:
            failed = (member.rank for member in report.members if member.state is MemberState.FAILED)
            truth.first_heard = next(failed, None)

    def sending(self, gang: Gang, action: Send) -> None:
        command = action.command
        if isinstance(command, Prepare | Go) and command.attempt < self.highest:
            raise Violation("I7", f"{type(command).__name__} of attempt {command.attempt} after attempt {self.highest}")
        if isinstance(command, Prepare):
            self.used = max(self.used, command.attempt)
            self.seating.preparing(gang, command)
            for placement in command.placements:
                if taken := {placement.node, placement.device} & self.avoided:
                    raise Violation("avoid", f"attempt {command.attempt} is placed on {', '.join(sorted(taken))}")
        elif isinstance(command, Go):
            if gang.phase in LIVE and gang.attempt_state.roster.verdict(gang.spec) is False:
                known = gang.attempt_state.roster.failed()[0]
                if known.start_failed:
                    raise Violation("I3", f"GO of attempt {command.attempt} after {known.fate}")
            if len(self.truth(command.attempt).prepared) < self.truth(command.attempt).size:
                raise Violation("I3", f"GO of attempt {command.attempt} before all are prepared")

    # ------------------------------------------------------------------------------------------ reports and ends

    def evidence(self, evidence: AttemptEvidence) -> None:
        """Check the evidence that the owner has collected about an attempt.

        A rank that counts as stopped must have been stopped, and a rank that died by itself must not count as stopped.
        """
        self.evidences[evidence.attempt] = evidence
        truth = self.truth(evidence.attempt)
        for worker in evidence.workers:
            ended, cause = worker.exit, truth.deaths.get(worker.rank)
            if ended is None or ended.ok:
                continue
            # A worker died by itself if it was dying before the SIGKILL of its agent came.
            asked_at = truth.signalled.get(worker.node, self.world.now)
            before_stop = truth.dying_at.get(worker.rank, truth.died_at[worker.rank]) < asked_at - HAIR
            if ended.after_stop and cause == "own" and before_stop:
                raise Violation("I5", f"rank {worker.rank} died by itself, and counts as stopped")
            if not ended.after_stop and cause == "stop" and not before_stop:
                raise Violation("I5", f"rank {worker.rank} was stopped, and counts as dead by itself")

    def recorded(self, record: AttemptRecord) -> None:
        """Check that each ended attempt has exactly one report."""
        number = record.attempt
        if number in self.records:
            raise Violation("report", f"attempt {number} is recorded twice")
        if record.report.attempt != number:
            raise Violation("report", f"attempt {number} is explained by the evidence of {record.report.attempt}")
        self.records[number] = record
        self.judge(record)

    def judge(self, record: AttemptRecord) -> None:
        """Check the invariants I4 and I5 for the record of one attempt."""
        number, report, first = record.attempt, record.report, record.report.first
        if record.decision.kind is DecisionKind.REQUEUE and report.reason == f"the platform begins run {self.runs}":
            self.cut_short.add(number)
        self.seating.recorded(record)
        self.ended[number] = record.ended_at
        if record.decision.charged and record.decision.kind in (DecisionKind.STOP, DecisionKind.SUCCEED):
            raise Violation("I4", f"attempt {number} ended as intended and is charged")
        if not record.decision.reason:
            raise Violation("report", f"the decision on attempt {number} has no reason")
        evidence = self.evidences.get(number)
        if first is None or evidence is None or evidence.stop is not None:
            return
        if report.phrase == Phrase.HOST_OUT_OF_MEMORY_KILLED and first.rank not in self.truth(number).out_of_memory:
            raise Violation("I5", f"attempt {number} takes the memory kill of another node for rank {first.rank}'s end")
        exits = {worker.rank: worker.exit for worker in evidence.workers}
        mine = exits.get(first.rank)
        special = evidence.hang or evidence.lost or evidence.deadline or evidence.check or evidence.faults
        truth = self.truth(number)
        others = (rank for rank, exit_ in exits.items() if exit_ and not exit_.after_stop)
        blamed = any(truth.deaths.get(rank) == "peer" for rank in others)
        if not special and not blamed and mine is not None and mine.after_stop:
            # If others waited in vain for the blamed rank, the blame is right, even if that rank was stopped in the
            # end.
            raise Violation("I5", f"attempt {number} blames rank {first.rank}, which was only stopped")
        if not special and truth.deaths.get(first.rank) == "peer":
            plan = self.world.plan
            slack = plan.latency_s * (1.0 + plan.jitter)  # within this time nobody could know which death came first
            own = [
                rank
                for rank, exit_ in exits.items()
                if exit_ is not None
                and not exit_.after_stop
                and not exit_.ok
                and truth.deaths.get(rank) == "own"
                and truth.died_at[rank] + slack <= (truth.stopped_at or self.world.now)
            ]
            if own:
                raise Violation(
                    "I5",
                    f"attempt {number} blames rank {first.rank} ({report.phrase}), but rank {own[0]} died of itself",
                )

    def finished(self, report: JobReport) -> None:
        if self.report is not None and report != self.report:
            raise Violation("report", "the job has two different final reports")
        self.report = report
        self.seating.finished(report)

    def came_back(self, gang: Gang) -> None:
        """Adjust the witness to the owner's state after the owner has replayed its journal."""
        self.back_at = self.world.now
        self.back_in.add(gang.phase)
        if self.tail_lost:
            self.records = {record.attempt: record for record in gang.records}
            self.ended = {record.attempt: record.ended_at for record in gang.records}
            self.highest = max(gang.attempt, self.used)
            self.avoided = set(gang.avoid)
            self.entered_at = gang.entered_at
            self.seating.line, self.seating.came_at = (
                gang.line,
                0.0,
            )  # the owner may have forgotten which node joined last
            self.seating.waited_from = gang.entered_at
            self.seating.refill = RefillWait(earliest=0.0)
            if self.world.plan.lying_disk:
                self.highest = gang.attempt
        for record in gang.records:
            # Records that the owner wrote but could not act on before it died are judged now.
            if record.attempt not in self.records:
                self.records[record.attempt] = record
                self.judge(record)
            elif self.records[record.attempt] != record and not self._decided_anew(gang, record):
                raise Violation("I9", f"attempt {record.attempt} is remembered differently after a replay")
        if gang.attempt < self.highest:
            raise Violation("I7", f"the owner came back at attempt {gang.attempt}, and was at {self.highest}")
        self.avoided |= gang.avoid

    def _decided_anew(self, gang: Gang, record: AttemptRecord) -> bool:
        """Return whether this record differs from the known one only in its decision, and the job ended without another
        attempt."""
        before = self.records[record.attempt]
        return (
            gang.phase is Phase.DONE
            and record is gang.records[-1]
            and before.decision.kind in (*AGAIN, DecisionKind.REQUEUE)
            and replace(record, decision=before.decision) == before
        )

    def resumed(self, gang: Gang) -> None:
        """Note that the platform has started another run of the job."""
        self.runs += 1
        self.seating.line = ()
        self.seating.waited_from = self.world.now

    def replayed(self, index: int, again: list[Action], then: list[Action]) -> None:
        if again != then:
            raise Violation("I9", f"event {index} is answered with {again} in the replay, and was with {then}")


def _path(before: Phase, after: Phase) -> list[tuple[Phase, Phase]]:
    """Return the edges of the phase table that lead from one phase to the other within one step."""
    if (before, after) in EDGES:
        return [(before, after)]
    paths = [[(before, middle), (middle, after)] for middle in Phase if {(before, middle), (middle, after)} <= EDGES]
    if not paths:
        raise Violation("table", f"no moves of the table lead from {before} to {after}")
    return paths[0]
