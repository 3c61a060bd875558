"""The end of an attempt: one report, one decision, one record. Pure: the same evidence concludes the same way.

Explaining takes time, and no clock is read here. So the end has two steps with a moment of their own each: the evidence
is explained, and in the gang's next step, which is later by what that took, the decision is made and dated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.decide.conclusion import Conclusion
from holdfast.decide.progress import healthy, restores, signs_of, stood_at
from holdfast.decide.trial import Trial
from holdfast.explain import explain
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.evidence import AttemptEvidence, StopRequest
from holdfast.model.exits import Blame, ExitReport, Outcome
from holdfast.model.jobs import RestartPolicy

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue

_ORDER = (
    "backoff", "checking", "preparing", "starting", "running", "detection", "draining", "decision", "done",
    "first_output",
)  # fmt: skip
"""Of an attempt's parts, as they follow each other."""


def understand(
    trial: Trial,
    evidence: AttemptEvidence,
    history: Sequence[AttemptRecord],
    policy: RestartPolicy,
    catalogue: Catalogue | None = None,
) -> Conclusion:
    """Explain a drained attempt."""
    steps = [worker.last_step for worker in evidence.workers if worker.last_step is not None]
    step = min(steps) if steps else None
    ran_s = trial.parts.get("running", 0.0)
    counts = stood_at(evidence)
    signs = signs_of(evidence, counts, step, history, ran_s=ran_s, healthy_s=policy.healthy_s)
    progressed = healthy(signs) or restores(signs)
    if trial.completed:
        # What the policy did without is not what the job ended of.
        done = trial.done()
        finished = tuple(worker for worker in evidence.workers if worker.rank in done)
        evidence = replace(evidence, workers=finished, stop=None)
    report = explain(replace(evidence, progressed=progressed), catalogue)
    return Conclusion(
        report=report,
        evidence=evidence,
        progressed=progressed,
        step=step,
        counts=counts,
        signs=signs,
    )


def conclude(
    trial: Trial,
    found: Conclusion,
    history: Sequence[AttemptRecord],
    policy: RestartPolicy,
    *,
    now: float,
    seed: int,
    stop: StopRequest | None,
    spare: Callable[[Sequence[str]], bool],
) -> AttemptRecord:
    """Decide what follows an attempt that has been understood.

    `stop`: a request to end the job, whether or not it ended this attempt. `spare(names)`: whether leaving these nodes
    or devices out still leaves places for every rank.
    """
    report = found.report
    if trial.completed:
        decision = Decision(kind=DecisionKind.SUCCEED, reason=report.reason)
    elif stop is not None:
        decision = Decision(kind=DecisionKind.STOP, reason=stop.reason)
    elif trial.unkillable:
        decision = Decision(
            kind=DecisionKind.FAIL,
            reason="some of its processes could not be killed: a new attempt beside them would not be safe",
        )
    else:
        from holdfast.decide.recovery import recover  # a job that succeeds does without it

        decision = recover(
            report,
            policy,
            history,
            signs=found.signs,
            now=now,
            jitter=jitter(seed, trial.attempt),
            spare=spare(blamed(report)),
        )
    return AttemptRecord(
        attempt=trial.attempt,
        started_at=trial.started_at,
        ended_at=now,
        report=report,
        decision=decision,
        progressed=found.progressed,
        step=found.step,
        counts=found.counts,
        signs=found.signs,
        checks=trial.checks,
    )


def spent(trial: Trial, evidence: AttemptEvidence, now: float) -> dict[str, float]:
    """Where the attempt's time went, in seconds: its phases, and what is worth telling apart in them.

    They follow each other without a gap, from the end of the attempt before (`backoff` lies before the attempt's own
    start). `detection` (from the first sign of trouble to the stop) is taken out of the phases that it fell into,
    `decision` (from the last exit to what follows) out of `draining`. Only `first_output` lies beside the others: it
    counts from the go.
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


def _signs(trial: Trial, evidence: AttemptEvidence) -> Iterator[float]:
    """When each thing that could have led to the stop began."""
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
    """What a next attempt would have to leave out: the devices the report names, else the culprit's node."""
    return report.devices or ((report.first.node,) if report.first else ())


def jitter(seed: int, attempt: int) -> float:
    """Uniform in [0, 1), the same for the same job and attempt: a replay must wait as long as history did."""
    import hashlib  # brings OpenSSL, which a job that succeeds never needs

    digest = hashlib.blake2b(f"{seed}:{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2.0**64


def outcome(decision: DecisionKind, report: ExitReport) -> Outcome:
    """How the job ended, if it ends with this decision. Only a person stops a job; a limit or a cleaner fails it."""
    if decision is DecisionKind.SUCCEED:
        return Outcome.SUCCEEDED
    if decision is DecisionKind.STOP and report.blame is Blame.OPERATOR:
        return Outcome.STOPPED
    return Outcome.FAILED
