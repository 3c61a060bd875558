"""Functions for an attempt's record: its counts, time by phase, blamed devices, the jitter, and the job's outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.decide.attempt_state import AttemptState, Conclusion
from holdfast.decide.device_binding import bindings
from holdfast.decide.requeue_rules import RequeueBudget
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, Tally
from holdfast.model.evidence import AttemptEvidence, StopRequest
from holdfast.model.exit_report import Blame, ExitReport, Outcome
from holdfast.model.phrases import Phrase

#: The parts of an attempt's time, in order.
_ORDER = (
    "backoff", "assembling", "checking", "preparing", "starting", "running", "detection", "draining", "decision",
    "queued", "done", "first_output",
)  # fmt: skip


def concluded(trial: AttemptState, found: Conclusion, decision: Decision, now: float) -> AttemptRecord:
    """Return the record of an attempt whose end is explained and decided."""
    return AttemptRecord(
        attempt=trial.attempt,
        started_at=trial.started_at,
        ended_at=now,
        report=found.report,
        decision=decision,
        progressed=found.progressed,
        step=found.step,
        counts=found.counts,
        signs=found.signs,
        checks=trial.checks,
        workers=len(trial.roster.seats),
        bound=bindings(trial.roster.seats),
        tally=tally(found.evidence, found.report),
    )


def tally(evidence: AttemptEvidence, report: ExitReport) -> Tally:
    """Return the counts of an attempt's record: steps, workers that ended, left-out output."""
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
    """Return the decision after a request that ends only this run.

    `failed`: the decision on the attempt's own failure.
    """
    if failed is not None and failed.kind in (DecisionKind.FAIL, DecisionKind.REQUEUE):
        return failed
    if left is None or left.refusal is not None:
        return Decision(kind=DecisionKind.STOP, reason=left.instead(stop.reason) if left else stop.reason)
    if failed is not None:
        # The attempt's own failure is charged as usual; the platform only moves the next attempt to another run.
        return Decision(
            kind=DecisionKind.REQUEUE,
            reason=f"{failed.reason}; {stop.reason}",
            charged=failed.charged,
            avoid=failed.avoid,
        )
    return Decision(kind=DecisionKind.REQUEUE, reason=f"{left.cost()}: {stop.reason}")


def time_spent(trial: AttemptState, evidence: AttemptEvidence, now: float) -> dict[str, float]:
    """Return the seconds that the attempt spent in each phase, and in the parts of phases that are shown separately.

    The parts follow each other without a gap, from the end of the previous attempt (`backoff` is before the attempt's
    own start). `detection` (from the first sign of trouble to the stop) is subtracted from its phases, and `decision`
    (from the last exit to the next step) from `draining`. Only `first_output` overlaps the others: it counts from the
    GO.
    """
    parts = dict(trial.parts)

    def take(name: str, sources: Sequence[str], seconds: float) -> None:
        left = max(seconds, 0.0)
        parts[name] = 0.0
        for source in sources:
            taken = min(left, parts.get(source, 0.0))
            if taken > 0:
                parts[name] += taken
                parts[source] -= taken
                left -= taken

    if trial.stop_asked_at is not None and not trial.completed:
        first = min(_signs(trial, evidence), default=trial.stop_asked_at)
        take("detection", ("running", "starting", "preparing"), trial.stop_asked_at - first)
    if trial.drained_at is not None:
        take("decision", ("draining",), now - trial.drained_at)
    written = [w.first_output_at for w in evidence.workers if w.first_output_at is not None]
    if written and trial.go_at is not None:
        parts["first_output"] = max(0.0, min(written) - trial.go_at)
    return {name: parts[name] for name in sorted(parts, key=_ORDER.index)}


def _signs(trial: AttemptState, evidence: AttemptEvidence) -> Iterator[float]:
    """Yield when each sign of trouble began that could have led to the stop."""
    for worker in evidence.workers:
        ended = worker.exit
        if ended is not None and ended.ended_at is not None and not ended.after_stop and not ended.ok:
            yield ended.ended_at
    if trial.stop_asked_at is not None:
        yield from (trial.stop_asked_at - lost.silent_s for lost in trial.lost.values())
    if evidence.hang is not None and evidence.hang.at is not None:
        yield evidence.hang.at - evidence.hang.silent_s
    yield from (fault.event.at for fault in trial.faults if fault.stopped)


def blamed(report: ExitReport) -> tuple[str, ...]:
    """Return what the next attempt would have to avoid: the devices in the report, else the culprit's node."""
    return report.devices or ((report.first.node,) if report.first else ())


def jitter(seed: int, attempt: int) -> float:
    """Return a number in [0, 1) computed from seed and attempt: a replay must wait as long as the first time."""
    import hashlib  # it imports OpenSSL, which a job that succeeds never needs

    digest = hashlib.blake2b(f"{seed}:{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2.0**64


def outcome(decision: DecisionKind, report: ExitReport) -> Outcome:
    """Return how the job ended, if this decision ends it. Only a user stops a job; a limit or a cleaner fails it."""
    if decision is DecisionKind.SUCCEED:
        return Outcome.SUCCEEDED
    if decision is DecisionKind.STOP and report.blame is Blame.OPERATOR:
        return Outcome.STOPPED
    return Outcome.FAILED
