"""The choice of the jobs that are preempted: the lowest class, the least work lost, the fewest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.decide.queue.queue_model import DAY_S, Policy, RunningJob, WaitingJob
from holdfast.decide.queue.queue_order import aged_class

#: Returns whether a job would start once these have left.
Enough = Callable[[Sequence[RunningJob]], bool]


def may_be_preempted(now: float, victim: RunningJob, job: WaitingJob, policy: Policy) -> bool:
    """Return whether `job` may preempt `victim`.

    Classes count as they were typed: ageing preempts no job. But an old job that has got its turn before a job of a
    higher class keeps it.
    """
    return (
        victim.preemptible
        and not victim.draining
        and victim.priority < job.priority
        and victim.stood < aged_class(now, job, policy)
        and spared_until(victim, policy, now) <= now
    )


def spared_until(victim: RunningJob, policy: Policy, now: float) -> float:
    """Return the moment until which a job may not be preempted (again)."""
    until = victim.started_at + policy.preempt_after_s
    lately = sorted(at for at in victim.preempted_at if at > now - DAY_S)
    if len(lately) >= policy.most_preemptions_a_day:
        most = policy.most_preemptions_a_day
        until = max(until, lately[-most] + DAY_S) if most else float("inf")
    return until


def lost_work_s(now: float, victim: RunningJob) -> float:
    """Return the seconds of work that a preemption without a new save would lose."""
    return max(now - max(victim.started_at, victim.saved_at or victim.started_at), 0.0)


def choose_victims(
    now: float, job: WaitingJob, running: Iterable[RunningJob], policy: Policy, enough: Enough
) -> tuple[RunningJob, ...]:
    """Return the jobs to be preempted for `job`; none if it could not start by it.

    The first candidates that are enough, in the order of class and lost work, decide which classes have to leave. Who
    is not needed is spared, the most lost work first. One job that is enough is better if it costs no more.
    """
    candidates = sorted(
        (victim for victim in running if may_be_preempted(now, victim, job, policy)),
        key=lambda victim: (victim.priority, lost_work_s(now, victim), victim.id),
    )
    if not candidates or not enough(candidates):
        return ()
    chosen: list[RunningJob] = []
    for victim in candidates:
        chosen.append(victim)
        if enough(chosen):
            break
    for victim in reversed(tuple(chosen)):
        fewer = [other for other in chosen if other is not victim]
        if enough(fewer):
            chosen = fewer
    sets = [chosen, *([victim] for victim in candidates if enough([victim]))]
    return tuple(min(sets, key=lambda victims: _cost(now, tuple(victims))))


def _cost(now: float, victims: Sequence[RunningJob]) -> tuple[int, float, int]:
    lost_s = sum(lost_work_s(now, victim) for victim in victims)
    return max(victim.priority for victim in victims), lost_s, len(victims)
