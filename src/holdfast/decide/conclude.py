"""The end of an attempt: one report, one decision, one record. Pure: the same evidence concludes the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.decide.recovery import recover
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


def conclude(
    trial: Trial,
    evidence: AttemptEvidence,
    history: Sequence[AttemptRecord],
    policy: RestartPolicy,
    *,
    now: float,
    seed: int,
    stop: StopRequest | None,
    spare: Callable[[Sequence[str]], bool],
    catalogue: Catalogue | None = None,
) -> AttemptRecord:
    """Explain a drained attempt and decide what follows.

    `stop`: a request to end the job, whether or not it ended this attempt. `spare(names)`: whether leaving these nodes
    or devices out still leaves places for every rank.
    """
    steps = [worker.last_step for worker in evidence.workers if worker.last_step is not None]
    step = min(steps) if steps else None
    best = max((record.step for record in history if record.step is not None), default=-1)
    healthy = trial.parts.get("running", 0.0) >= policy.healthy_s
    progressed = healthy or (step is not None and step > best)
    if trial.completed:
        # What the policy did without is not what the job ended of.
        done = trial.done()
        finished = tuple(worker for worker in evidence.workers if worker.rank in done)
        evidence = replace(evidence, workers=finished, stop=None)
    report = explain(replace(evidence, progressed=progressed), catalogue)
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
        decision = recover(
            report,
            policy,
            history,
            progressed=progressed,
            healthy=healthy,
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
        parts=trial.parts,
        progressed=progressed,
        step=step,
    )


def spent(trial: Trial, evidence: AttemptEvidence, now: float) -> dict[str, float]:
    """Where the attempt's time went, in seconds: its phases, and what is worth telling apart in them.

    `detection` (from the first sign of trouble to the stop) is taken out of `running`, `decision` (from the last exit
    to what follows) out of `draining`. `first_output` counts from the go and overlaps with both phases after it.
    """
    parts = dict(trial.parts)

    def take(name: str, source: str, seconds: float) -> None:
        parts[name] = min(max(seconds, 0.0), parts.get(source, 0.0))
        parts[source] = parts.get(source, 0.0) - parts[name]

    signs = [w.exit.ended_at for w in evidence.workers if w.exit and not w.exit.after_stop and not w.exit.ok]
    if evidence.hang is not None and evidence.hang.at is not None:
        signs.append(evidence.hang.at - evidence.hang.silent_s)
    seen = [at for at in signs if at is not None]
    if seen and trial.stop_asked_at is not None and not trial.completed:
        take("detection", "running", trial.stop_asked_at - min(seen))
    if trial.drained_at is not None:
        take("decision", "draining", now - trial.drained_at)
    written = [w.first_output_at for w in evidence.workers if w.first_output_at is not None]
    if written and trial.go_at is not None:
        parts["first_output"] = max(0.0, min(written) - trial.go_at)
    return {name: parts[name] for name in sorted(parts, key=lambda name: _ORDER.index(name))}


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
