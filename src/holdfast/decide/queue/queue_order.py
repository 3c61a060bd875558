"""The order of the waiting jobs: class and ageing, then the use of the machine by their users, then submission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from holdfast.decide.queue.queue_model import (
    FairShare,
    Machine,
    Policy,
    Priority,
    RunningJob,
    WaitingJob,
    share_of,
)
from holdfast.decide.queue.wait_reason import WaitReason
from holdfast.model.human_format import duration

#: From here on a job stands above all that are submitted later.
ABOVE_ALL = Priority.URGENT + 1


def aged_class(now: float, job: WaitingJob, policy: Policy) -> float:
    """Return the class of a job, plus one for each `age_s` in which nothing but its turn was missing.

    There is no upper end. Above urgent parts of an age count too, and fair share does not, so that the order of old
    jobs changes no more.
    """
    ages = job.eligible(now) / policy.age_s
    return job.priority + (ages if job.priority + ages >= ABOVE_ALL else int(ages))


def in_order(now: float, waiting: Iterable[WaitingJob], policy: Policy, shares: FairShare) -> list[WaitingJob]:
    """Return the waiting jobs, the first one first. `shares`: charged until `now` (`charged_until`)."""
    jobs = tuple(waiting)
    use = {user: shares.use(user, now) for user in {job.user for job in jobs}}
    keyed = []
    for job in jobs:
        aged = aged_class(now, job, policy)
        used = use[job.user] if aged < ABOVE_ALL else 0.0
        keyed.append((not job.returns_first, -aged, used, job.submitted_at, job.id, job))
    keyed.sort()
    return [entry[-1] for entry in keyed]


def why_before(now: float, first: WaitingJob, second: WaitingJob, policy: Policy, shares: FairShare) -> str:
    """Return in words why `first` stands before `second`."""
    if first.returns_first != second.returns_first:
        return "it was preempted for a job that never started"
    classes = aged_class(now, first, policy), aged_class(now, second, policy)
    if classes[0] != classes[1]:
        return f"its class is higher: {_class(now, first, policy)}; the other's is {_class(now, second, policy)}"
    if classes[0] < ABOVE_ALL and shares.use(first.user, now) != shares.use(second.user, now):
        return f"{first.user} has used less of the machine than {second.user}"
    return "it was submitted earlier"


def _class(now: float, job: WaitingJob, policy: Policy) -> str:
    name = Priority(job.priority).name.lower()
    steps = aged_class(now, job, policy) - job.priority
    return f"{name} and {steps:.3g} more for {duration(job.eligible(now))} of waiting" if steps else name


def aged(now: float, waiting: Iterable[WaitingJob], reasons: Mapping[str, WaitReason]) -> list[WaitingJob]:
    """Return the jobs whose waiting begins or stops to count with these reasons, as they are to be stored from now on.

    All other jobs stay as they are, so that a plan writes few records.
    """
    changed = []
    for job in waiting:
        reason = reasons.get(job.id)
        counts = reason is not None and reason.its_turn
        if counts and job.eligible_since is None:
            changed.append(replace(job, eligible_since=now))
        elif not counts and job.eligible_since is not None:
            changed.append(replace(job, eligible_s=job.eligible(now), eligible_since=None))
    return changed


def charged_until(
    now: float, since: float, machine: Machine, running: Iterable[RunningJob], shares: FairShare
) -> FairShare:
    """Return the ledger after what the running jobs have used from `since` to `now`."""
    for job in running:
        share = share_of(machine, len(job.devices), job.has_cpus)
        shares = shares.charged(job.user, share, max(since, job.started_at), now)
    return shares
