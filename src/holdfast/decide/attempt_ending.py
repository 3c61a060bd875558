"""Writes the records of ended attempts, and the job's report at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.decide import gang_wording
from holdfast.decide.attempt_state import AttemptState, Conclusion
from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.device_binding import bindings
from holdfast.decide.job_state import GangState, PendingRequeue
from holdfast.decide.phases import Phase, PhaseTrigger
from holdfast.decide.recovery.restart_budgets import ANSWER_S, RequeueBudget, is_free, requeues
from holdfast.explain import explain
from holdfast.explain.causes.grace_kills import fate, outstayed
from holdfast.model.actions import Requeue
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport, Tally
from holdfast.model.evidence import AttemptEvidence, CheckFailure, Deadline, GangShortfall, StopRequest
from holdfast.model.exit_report import OPERATOR_CODE, Blame, ExitReport, Outcome
from holdfast.model.faults import DeviceStanding
from holdfast.model.human_format import clock
from holdfast.model.phrases import Phrase
from holdfast.model.progress_facts import Sign

#: The decisions that lead to another attempt in this run of the job.
AGAIN = (DecisionKind.RESTART, DecisionKind.REPLACE)


#: Maximum length of the printed line about an ended attempt, in characters, including the prefix `holdfast:`.
MOST_LINE = 160
_PROGRAM = "holdfast: "


def decision_line(record: AttemptRecord) -> str:
    """Return one line about the end of an attempt and the decision, with at most `MOST_LINE` characters. The report has
    the full text.
    """
    begin, said = f"attempt {record.attempt}: {record.report.phrase}: ", " ".join(record.report.reason.split())
    then, room = f"; decision: {record.decision.reason}", MOST_LINE - len(_PROGRAM) - len(begin)
    if len(said) + len(then) > room:
        # Put the decision's reason last, because the line may be cut at its end.
        then = _cut(f"; decision: {record.decision.reason.partition(': ')[0]}", room // 2)
    return f"{begin}{_cut(said, room - len(then))}{then}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(0, limit - 2)].rstrip()} …"


class AttemptRecorder:
    """Writes the records of attempts and the report of the job."""

    def __init__(self, gang: GangState) -> None:
        self._gang = gang

    def record(self, record: AttemptRecord) -> None:
        gang = self._gang
        gang.record(record)
        # Print these lines only if the job goes on, because the report at the job's end has the same facts.
        if record.decision.kind in (*AGAIN, DecisionKind.REQUEUE):
            for left in record.report.left_running:
                gang.say(f"attempt {record.attempt}: {left}")
            gang.say(decision_line(record))

    def finish(self, report: ExitReport, kind: DecisionKind, reason: str) -> None:
        """End the job. `kind`: the final decision. `reason`: why no attempt follows.

        If the last decision announced another attempt, the new decision replaces it.
        """
        gang = self._gang
        if gang.records and gang.records[-1].decision.kind in (*AGAIN, DecisionKind.REQUEUE):
            decided = replace(gang.records[-1].decision, kind=kind, reason=reason, charged=False, delay_s=0.0)
            gang.decide_anew(decided)
        gang.finish(
            JobReport(
                job_id=gang.job_id,
                name=gang.spec.name,
                outcome=outcome(kind, report),
                report=report,
                attempts=tuple(gang.records),
            )
        )

    def finish_between(self, request: StopRequest, now: float) -> None:
        """End the job because of a stop request between two attempts.

        If the request only ends this run, queue the job again.
        """
        gang = self._gang
        free = is_free(request.phrase, signs=self._signs_here())
        left = self.requeues(free=free) if gang.phase is not Phase.QUEUED and request.requeue else None
        if left is not None and left.refusal is None:
            if not free:
                gang.count_requeue()
            gang.move(PhaseTrigger.REQUEUE, now, request.reason)
            self.queue(now, f"{left.cost()}: {request.reason}", self._stopped(request), DecisionKind.STOP)
            return
        gang.move(PhaseTrigger.STOP_REQUESTED, now, request.reason)
        self.finish_stopped(request)

    def finish_stopped(self, request: StopRequest) -> None:
        """End the job as stopped. The last attempt's record keeps the cause of that attempt."""
        self.finish(self._stopped(request), DecisionKind.STOP, request.reason)

    def _stopped(self, request: StopRequest) -> ExitReport:
        gang = self._gang
        evidence = AttemptEvidence(attempt=gang.attempt, stop=request, phase=gang.phase, job=gang.job_id)
        return explain(evidence, gang.catalogue)

    def finish_unstarted(
        self,
        trigger: PhaseTrigger,
        now: float,
        kind: DecisionKind,
        reason: str,
        cause: ExitReport | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        """End the job, or queue it again, because an attempt ended during its checks. Record the attempt.

        `trigger`: the phase transition. `kind`, `reason`: the decision, and why. `cause`: the report of the job; None:
        the report of this attempt. `elsewhere`: whether the job could continue on other nodes.
        """
        gang = self._gang
        if gang.stop is not None:
            gang.attempt_state.end_by(gang.stop)
        stop = gang.stop if gang.stop is not None and gang.stop.requeue else None
        free = stop is not None and is_free(stop.phrase, signs=())
        left = self.requeues(free=free) if elsewhere or stop is not None else None
        if left is not None and left.refusal is None:
            trigger, kind, reason = PhaseTrigger.REQUEUE, DecisionKind.REQUEUE, f"{left.cost()}: {reason}"
        elif left is not None:
            reason = left.instead(reason)
        report = self.record_unstarted(trigger, now, kind, reason)
        if kind is DecisionKind.REQUEUE:
            fallen = DecisionKind.FAIL if gang.stop is None else DecisionKind.STOP
            self.queue(now, reason, cause or report, fallen)
        else:
            self.finish(cause or report, kind, reason)

    def record_unstarted(self, trigger: PhaseTrigger, now: float, kind: DecisionKind, reason: str) -> ExitReport:
        """Record an attempt that ended before it had workers. `trigger`: the phase transition. `kind`, `reason`: the
        decision, and why.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        report = explain(attempt_state.evidence(Phase.CHECKING, gang.job_id), gang.catalogue)
        gang.move(trigger, now, reason)
        record = AttemptRecord(
            attempt=gang.attempt,
            started_at=attempt_state.started_at,
            ended_at=now,
            report=report,
            decision=Decision(kind=kind, reason=reason),
            parts=dict(attempt_state.parts),
            checks=attempt_state.checks,
        )
        self.record(record)
        return report

    def finish_without_places(self, now: float, why: str = "") -> None:
        """End the job, or queue it again, because too few healthy nodes and devices are left for all ranks. The last
        cause remains the job's cause.

        `why`: the reason in the report; empty: the lack of healthy nodes and devices.
        """
        gang, failure, free = self._gang, self.too_few(), bool(self._signs_here())
        left = self.requeues(free=free)
        report = gang.records[-1].report if gang.records else None
        if report is None:
            evidence = AttemptEvidence(attempt=1, check=failure, phase=Phase.CHECKING, job=gang.job_id)
            report = explain(evidence, gang.catalogue)
        reason = why or failure.message
        if left.refusal is None:
            last = gang.records[-1] if gang.records else None
            if free and last is not None:
                moved = f"{left.cost()}: {reason}"
                gang.decide_anew(replace(last.decision, kind=DecisionKind.REQUEUE, reason=moved, delay_s=0.0))
            elif last is None or last.decision.charged or last.attempt <= gang.began_after:
                # No decision of an attempt counts this requeue, so count it here.
                gang.count_requeue()
            gang.move(PhaseTrigger.REQUEUE, now, reason)
            self.queue(now, reason, report, DecisionKind.FAIL)
            return
        gang.say(left.instead(reason))
        gang.move(PhaseTrigger.NONE_HEALTHY, now, reason)
        self.finish(report, DecisionKind.FAIL, left.instead(reason))

    def requeues(self, *, free: bool = False) -> RequeueBudget:
        """Return the budget for further runs of the job. `free`: the next run spends no restart."""
        return requeues(self._gang.spec, self._gang.records, self._gang.unrecorded, free=free)

    def _signs_here(self) -> Sequence[Sign]:
        """Return the last attempt's signs of progress; empty if that attempt was in an earlier run of the job."""
        last = self._gang.records[-1] if self._gang.records else None
        return last.signs if last is not None and last.attempt > self._gang.began_after else ()

    def queue(self, now: float, reason: str, report: ExitReport, kind: DecisionKind) -> None:
        """Request the platform to start the job again (phase QUEUED). `reason`: why.

        `report`, `kind`: how the job ends if the platform refuses.
        """
        gang = self._gang
        gang.ask_requeue(PendingRequeue(reason, report, kind))
        gang.arm(TimerKind.DEADLINE, now + ANSWER_S)
        self.ask_again(reason)

    def ask_again(self, reason: str) -> None:
        """Send the platform the request to start the job again. A repeated request has no further effect."""
        gang = self._gang
        names = {gang.node_of(name) for name in gang.avoid}
        # If all other nodes fell silent at once, the network link of the owner's node has failed. The next run then
        # avoids only the owner's node.
        names |= {gang.attempt_state.cut_off} if gang.attempt_state.cut_off else set(gang.absent)
        without = tuple(sorted(name for name in names if name in gang.known))
        gang.emit(Requeue(run=gang.run, reason=reason, without=without, cause=gang.cause))

    def finish_unassembled(self, muster: GangShortfall, now: float) -> None:
        """End the job because too few nodes joined for its first attempt. `muster`: the nodes that joined, and the
        nodes that did not.
        """
        gang = self._gang
        said = tuple(gang.attempt_state.said)
        evidence = AttemptEvidence(
            deadline=Deadline.JOIN, muster=muster, phase=gang.phase, job=gang.job_id, platform=said
        )
        report = explain(evidence, gang.catalogue)
        gang.move(PhaseTrigger.NONE_HEALTHY, now, report.reason)
        gang.say(f"not started: {report.reason}")
        self.finish(report, DecisionKind.FAIL, report.reason)

    def say_who_outstayed(self, evidence: AttemptEvidence) -> None:
        """Print which ranks had not exited when the grace period of the stop ended."""
        if ranks := outstayed(evidence):
            self._gang.say(f"attempt {self._gang.attempt}: {fate(ranks, evidence)}")

    def too_few(self) -> CheckFailure:
        gang = self._gang
        return gang_wording.too_few_places(gang.spec, gang.nodes, gang.avoid, gang.kept_out, self._day)

    def _day(self, kept: DeviceStanding) -> str:
        return "unknown" if kept.since is None else clock(kept.since, lambda _: self._gang.utc_offset_s)


#: The order in which the record of an attempt lists its phases.
_ORDER = (
    "backoff", "assembling", "checking", "preparing", "starting", "running", "detection", "draining", "decision",
    "queued", "done", "first_output",
)  # fmt: skip


def concluded(attempt_state: AttemptState, found: Conclusion, decision: Decision, now: float) -> AttemptRecord:
    """Return the record of an attempt after its end is explained and the decision is made. `attempt_state`: the
    attempt's state; `found`: the explained end.
    """
    return AttemptRecord(
        attempt=attempt_state.attempt,
        started_at=attempt_state.started_at,
        ended_at=now,
        report=found.report,
        decision=decision,
        progressed=found.progressed,
        step=found.step,
        counts=found.counts,
        signs=found.signs,
        checks=attempt_state.checks,
        workers=len(attempt_state.roster.placements),
        bound=bindings(attempt_state.roster.placements),
        tally=tally(found.evidence, found.report),
    )


def tally(evidence: AttemptEvidence, report: ExitReport) -> Tally:
    """Return the numbers for an attempt's record: steps, ended workers, and bytes of output that no console
    received.
    """
    workers = evidence.workers
    own = {one.rank for one in (report.first, *report.also) if one is not None}
    ended = [worker.exit for worker in workers if worker.exit is not None and not worker.exit.ok]
    first = [worker.first_step for worker in workers if worker.first_step is not None]
    saved = [worker.saved_step for worker in workers if worker.saved_step is not None]
    killed = report.phrase == Phrase.HOST_OUT_OF_MEMORY_KILLED
    return Tally(
        first_step=min(first, default=None),
        saved_step=min(saved, default=None),
        warm=all(worker.warm for worker in workers) if workers else None,
        listened=any(worker.listened for worker in workers),
        peers=sum(1 for end in ended if not end.after_stop and end.rank not in own),
        stopped=sum(1 for end in ended if end.after_stop and end.rank not in own),
        memory_scope=next((kill.scope for kill in evidence.memory_kills), "host") if killed else "",
        dropped_bytes=evidence.dropped_bytes,
    )


def requeue_decision(stop: StopRequest, left: RequeueBudget | None, failed: Decision | None = None) -> Decision:
    """Return the decision after a stop request that ends only this run of the job.

    `left`: the budget for further runs; None: the platform never starts the job again. `failed`: the decision about the
    attempt's failure, if it failed.
    """
    if failed is not None and failed.kind in (DecisionKind.FAIL, DecisionKind.REQUEUE):
        return failed
    if left is None or left.refusal is not None:
        return Decision(kind=DecisionKind.STOP, reason=left.instead(stop.reason) if left else stop.reason)
    if failed is not None:
        # The attempt's failure is charged to its budget as usual, because the platform only moves the next attempt to
        # another run.
        return Decision(
            kind=DecisionKind.REQUEUE,
            reason=f"{failed.reason}; {stop.reason}",
            charged=failed.charged,
            avoid=failed.avoid,
        )
    return Decision(kind=DecisionKind.REQUEUE, reason=f"{left.cost()}: {stop.reason}")


def time_spent(attempt_state: AttemptState, evidence: AttemptEvidence, now: float) -> dict[str, float]:
    """Return the seconds that the attempt spent in each phase. Some parts of phases are listed separately.

    The parts follow each other without a gap, from the end of the previous attempt. `backoff` is the pause before the
    attempt. `detection` is the time from the first sign of trouble to the stop, and is subtracted from its phases.
    `decision` is the time from the last exit to the decision, and is subtracted from `draining`. Only `first_output`
    overlaps other parts: it counts from GO. `attempt_state`: the attempt's state.
    """
    parts = dict(attempt_state.parts)

    def take(name: str, sources: Sequence[str], seconds: float) -> None:
        left = max(seconds, 0.0)
        parts[name] = 0.0
        for source in sources:
            taken = min(left, parts.get(source, 0.0))
            if taken > 0:
                parts[name] += taken
                parts[source] -= taken
                left -= taken

    if attempt_state.stop_asked_at is not None and not attempt_state.completed:
        first = min(_signs(attempt_state, evidence), default=attempt_state.stop_asked_at)
        take("detection", ("running", "starting", "preparing"), attempt_state.stop_asked_at - first)
    if attempt_state.drained_at is not None:
        take("decision", ("draining",), now - attempt_state.drained_at)
    written = [w.first_output_at for w in evidence.workers if w.first_output_at is not None]
    if written and attempt_state.go_at is not None:
        parts["first_output"] = max(0.0, min(written) - attempt_state.go_at)
    return {name: parts[name] for name in sorted(parts, key=_ORDER.index)}


def _signs(attempt_state: AttemptState, evidence: AttemptEvidence) -> Iterator[float]:
    """Yield the start time of each sign of trouble: a failed worker, a lost node, a hang, a fault that stopped the
    attempt. `attempt_state`: the attempt's state.
    """
    for worker in evidence.workers:
        ended = worker.exit
        if ended is not None and ended.ended_at is not None and not ended.after_stop and not ended.ok:
            yield ended.ended_at
    if attempt_state.stop_asked_at is not None:
        yield from (attempt_state.stop_asked_at - lost.silent_s for lost in attempt_state.lost.values())
    if evidence.hang is not None and evidence.hang.at is not None:
        yield evidence.hang.at - evidence.hang.silent_s
    yield from (fault.event.at for fault in attempt_state.faults if fault.stopped)


def blamed(report: ExitReport) -> tuple[str, ...]:
    """Return the names that the next attempt must avoid: the devices that the report blames, or else the culprit's
    node.
    """
    return report.devices or ((report.first.node,) if report.first else ())


def jitter(seed: int, attempt: int) -> float:
    """Return a pseudo-random number in [0, 1) for the seed and the attempt. A replay of the journal gets the same
    number, so it computes the same pause.
    """
    import hashlib  # imported late: hashlib loads OpenSSL, which a successful job never needs

    digest = hashlib.blake2b(f"{seed}:{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2.0**64


def outcome(decision: DecisionKind, report: ExitReport) -> Outcome:
    """Return the job's outcome: succeeded, stopped or failed.

    Only a stop by a user counts as stopped: the report blames the operator, or has the exit code of a user's stop. A
    stop by a time limit or by a disk cleaner counts as failed.
    """
    if decision is DecisionKind.SUCCEED:
        return Outcome.SUCCEEDED
    if decision is DecisionKind.STOP and (report.blame is Blame.OPERATOR or report.code == OPERATOR_CODE):
        return Outcome.STOPPED
    return Outcome.FAILED
