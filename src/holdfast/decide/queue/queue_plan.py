"""Plans the queue of one machine: what starts now and where, who is preempted, what is kept, and why the rest waits.

The first job that cannot start gets a reservation: a moment from the known ends of what runs, or only devices if an end
is not known. A later job starts if it ends before that moment, or if it leaves what the reservation needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from holdfast.decide.queue.device_choice import choose_devices
from holdfast.decide.queue.free_capacity import Capacity, device_count
from holdfast.decide.queue.queue_forecast import forecast
from holdfast.decide.queue.queue_limits import Usage, beyond, never_fits
from holdfast.decide.queue.queue_model import FairShare, Machine, Policy, Reservation, RunningJob, WaitingJob
from holdfast.decide.queue.queue_order import ABOVE_ALL, aged_class, in_order
from holdfast.decide.queue.queue_reservation import Claim, Held, Holders, Kept, claimed, reserve
from holdfast.decide.queue.victim_choice import choose_victims, spared_until
from holdfast.decide.queue.wait_reason import Missing, WaitReason
from holdfast.model.noun_base import Noun

__all__ = ["Plan", "Preemption", "Reservation", "Start", "WaitReason", "never_fits", "plan"]


#: What is missing of a job for which nothing but a place on the machine is missing.
_TURN = frozenset({Missing.CPUS, Missing.MEMORY, Missing.DEVICES, Missing.KEPT})


class Start(Noun, frozen=True, kw_only=True):
    job: str
    devices: tuple[str, ...] = ()
    cpus: int
    #: Its class with ageing, for `RunningJob.stood`.
    stood: float = 0.0


class Preemption(Noun, frozen=True, kw_only=True):
    victim: str
    for_job: str


class Plan(Noun, frozen=True, kw_only=True):
    starts: tuple[Start, ...] = ()
    #: The drain notices that are to be sent now. Record each together with the claim of `for_job` in `reservations`.
    preemptions: tuple[Preemption, ...] = ()
    #: The claims of jobs for which others leave, then the reservation of the first job that cannot start.
    reservations: tuple[Reservation, ...] = ()
    #: A reason for each waiting job that is not started, in the order of the queue.
    reasons: Mapping[str, WaitReason] = {}
    #: The next moment at which the plan may differ though nothing has happened; None: no such moment.
    wake_at: float | None = None


def plan(
    now: float,
    machine: Machine,
    running: Iterable[RunningJob],
    waiting: Iterable[WaitingJob],
    policy: Policy,
    shares: FairShare,
) -> Plan:
    """Return the plan of this moment. `shares`: charged until `now` (`queue_order.charged_until`)."""
    planner = _Planner(now, machine, running, policy)
    order = in_order(now, waiting, policy, shares)
    planner.start(order)
    reasons = planner.reasons(order)
    return Plan(
        starts=tuple(planner.starts),
        preemptions=tuple(planner.preemptions),
        reservations=planner.reservations,
        reasons=reasons,
        wake_at=planner.wake_at(order, reasons),
    )


class _Planner:
    """One plan as it grows. What is free only becomes less, so a job that does not fit does not fit later either."""

    def __init__(self, now: float, machine: Machine, running: Iterable[RunningJob], policy: Policy) -> None:
        self._now, self._machine, self._policy = now, machine, policy
        self._running = {job.id: job for job in running}
        #: What no job has, and the part of it that no claim keeps.
        self._idle = Capacity(machine, policy)
        for job in self._running.values():
            self._idle.take(job.devices, job.has_cpus, job.needs.memory)
        self._free = self._idle.copy()
        self._usage = Usage(policy, self._running.values())
        self._low = machine.available is not None and machine.available <= policy.reserve_memory
        self._claims: dict[str, Claim] = {}
        self._begun: dict[str, Held] = {}
        self._kept: Kept | None = None
        self.starts: list[Start] = []
        self.preemptions: list[Preemption] = []

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        claims = tuple(claim.reservation for claim in self._claims.values())
        return claims if self._kept is None else (*claims, self._kept.reservation)

    # Starts

    def start(self, order: Sequence[WaitingJob]) -> None:
        """Start what can start, and reserve for the first job that cannot."""
        for job in order:
            if job.reservation is not None and job.reservation.claim:
                self._resume_claim(job, job.reservation)
        refused: set[tuple[object, ...]] = set()
        for job in order:
            if self._kept is not None and not self._free.has_room(job):
                continue
            key = _kind(job)
            if key in refused or job.id in self._begun or job.id in self._claims or self._not_its_turn(job):
                continue
            devices = self._place(job)
            if devices is not None:
                self._begin(job, devices)
            elif self._kept is not None or self._beyond(job):
                refused.add(key)
            else:
                self._reserve(job)

    def _place(self, job: WaitingJob) -> tuple[str, ...] | None:
        """Return the devices on which a job may start now; None if it may not."""
        needs, free, kept = job.needs, self._free, self._kept
        cpus, memory, count = free.cpus_of(needs), needs.memory or 0, device_count(needs)
        if not free.has_room(job) or (self._low and needs.memory is None):
            return None
        closed = frozenset(job.avoid)
        if kept is not None and self._usage.crowds_out(kept.job, job, free):
            return None
        if kept is not None and not kept.is_over_by(self._ends(job, self._now)):
            if cpus > kept.cpus or memory > kept.memory:
                return None
            closed |= kept.devices
        if not count:
            return ()
        return choose_devices(count, [device for name, device in free.devices.items() if name not in closed], needs.on)

    def _begin(self, job: WaitingJob, devices: tuple[str, ...]) -> None:
        cpus, memory, ends = self._free.cpus_of(job.needs), job.needs.memory, self._ends(job, self._now)
        for capacity in (self._free, self._idle):
            capacity.take(devices, cpus, memory)
        if self._kept is not None and not self._kept.is_over_by(ends):
            self._kept.cpus -= cpus
            self._kept.memory -= memory or 0
        self._begun[job.id] = Held(job.id, devices, cpus, memory, since=self._now, ends=ends)
        self._usage.add(job, len(devices), cpus)
        stood = max(aged_class(self._now, job, self._policy), ABOVE_ALL if job.returns_first else 0)
        self.starts.append(Start(job=job.id, devices=devices, cpus=cpus, stood=stood))

    def _ends(self, job: WaitingJob, start: float) -> float:
        time_s = self._policy.assume_time_s if job.time_s is None else job.time_s
        return math.inf if time_s is None else start + time_s

    # Reservations and preemption

    def _reserve(self, job: WaitingJob) -> None:
        """Preempt for the first job that cannot start, or reserve for it."""
        kept = reserve(self._now, job, self._free.copy(), self._all_held())
        at = kept.reservation.at
        if not self._preempt(job, math.inf if at is None else at):
            self._kept = kept

    def _all_held(self) -> tuple[Held, ...]:
        """Return what is not free, and until when. What victims leave is the claims'."""
        others = (self._held(each) for each in self._running.values() if each.drains_for not in self._claims)
        claims = (held for claim in self._claims.values() for held in (claim.held, claim.surplus))
        return (*others, *claims, *self._begun.values())

    def _held(self, job: RunningJob) -> Held:
        ends, assumed_s = job.ends_at, self._policy.assume_time_s
        if ends is None and job.draining:
            ends = self._now + job.leaves_s
        if ends is None and assumed_s is not None and job.started_at + assumed_s > self._now:
            ends = job.started_at + assumed_s
        ends = math.inf if ends is None else max(ends, self._now)
        return Held(job.id, job.devices, job.has_cpus, job.needs.memory, since=job.started_at, ends=ends)

    def _preempt(self, job: WaitingJob, starts_at: float) -> bool:
        """Preempt jobs if `job` starts earlier by it, and claim for it what they leave."""
        if not self._usage.preempts(job):
            return False

        def enough(victims: Sequence[RunningJob]) -> bool:
            return self._free_after(victims).has_room(job)

        victims = choose_victims(self._now, job, self._running.values(), self._policy, enough)
        leave_by = self._now + max((victim.leaves_s for victim in victims), default=0.0)
        if not victims or starts_at <= leave_by:
            return False
        usable = [each for name, each in self._free_after(victims).devices.items() if name not in job.avoid]
        devices = choose_devices(device_count(job.needs), usable, job.needs.on)
        assert devices is not None, "the victims are enough"
        for victim in victims:
            self._running[victim.id] = replace(victim, draining=True, drains_for=job.id, ends_at=leave_by)
            self.preemptions.append(Preemption(victim=victim.id, for_job=job.id))
        self._claim(job, Reservation(job=job.id, devices=devices, at=leave_by, since=self._now, claim=True))
        return True

    def _free_after(self, victims: Iterable[RunningJob]) -> Capacity:
        free = self._free.copy()
        for victim in victims:
            free.give_back(victim.devices, victim.has_cpus, victim.needs.memory)
        return free

    def _victims(self, job: WaitingJob) -> list[RunningJob]:
        return [each for each in self._running.values() if each.drains_for == job.id]

    def _resume_claim(self, job: WaitingJob, reservation: Reservation) -> None:
        """Start a job for which others have left, or keep its claim. A claim that cannot be met any more is void."""
        devices = set(reservation.devices)
        if self._not_its_turn(job) or self._beyond(job) or len(devices) != device_count(job.needs):
            return
        if not devices >= set(job.needs.on) or devices.intersection(job.avoid):
            return
        cpus, memory = self._free.cpus_of(job.needs), job.needs.memory or 0
        if self._free.holds(devices, cpus, memory):
            self._begin(job, reservation.devices)
        elif self._free_after(self._victims(job)).holds(devices, cpus, memory):
            self._claim(job, reservation)

    def _claim(self, job: WaitingJob, reservation: Reservation) -> None:
        """Keep what a job needs: of what is free as much as its victims, once they have left, do not cover."""
        claim = claimed(self._now, job, reservation, self._victims(job), self._free)
        claim.held.ends = self._ends(job, claim.surplus.ends)
        self._claims[job.id] = claim
        self._usage.add(job, len(reservation.devices), claim.held.cpus)

    # Reasons

    def reasons(self, order: Sequence[WaitingJob]) -> dict[str, WaitReason]:
        """Return a reason for each job that is not started."""
        found: dict[str, WaitReason] = {}
        equal: dict[tuple[object, ...], WaitReason] = {}
        for job in order:
            if job.id in self._begun:
                continue
            reason = self._not_its_turn(job)
            if reason is None and (job.id in self._claims or (self._kept and self._kept.job is job)):
                reason = self._next(job)
            elif reason is None:
                key = _kind(job)
                reason = equal.get(key)
                if reason is None:
                    reason = equal[key] = self._lacking(job)
            found[job.id] = reason
        return self._expected(order, found)

    def _expected(self, order: Sequence[WaitingJob], found: dict[str, WaitReason]) -> dict[str, WaitReason]:
        """Add the expected starts of the next jobs, as far as they are known."""
        if self._kept is None or self._kept.reservation.at is None:
            return found
        jobs = (
            job for job in order if job.id in found and found[job.id].missing in _TURN and job.id not in self._claims
        )
        for name, at in forecast(self._now, jobs, self._free.copy(), self._all_held(), self._ends).items():
            found[name] = replace(found[name], starts_at=at)
        return found

    def _not_its_turn(self, job: WaitingJob) -> WaitReason | None:
        """Return what is missing besides its turn; None: nothing."""
        if job.held:
            return WaitReason(missing=Missing.RELEASE, details=(job.held,))
        if job.after:
            return WaitReason(missing=Missing.DEPENDENCY, jobs=job.after)
        if job.not_before is not None and job.not_before > self._now:
            return WaitReason(missing=Missing.TIME, starts_at=job.not_before)
        if job.id in self._claims:
            return None
        if text := self._usage.over_limit(job, device_count(job.needs), self._free.cpus_of(job.needs)):
            return WaitReason(missing=Missing.LIMIT, details=(text,))
        if job.array_limit and self._usage.arrays[job.array] >= job.array_limit:
            return WaitReason(missing=Missing.ARRAY, needs=job.array_limit, free=self._usage.arrays[job.array])
        return None

    def _beyond(self, job: WaitingJob) -> WaitReason | None:
        """Return what the machine cannot give at present, whichever jobs end; None: nothing."""
        details = beyond(self._machine, self._free, job)
        if details:
            return WaitReason(missing=Missing.MACHINE, details=details)
        if self._low and job.needs.memory is None:
            return WaitReason(missing=Missing.AVAILABLE)
        return None

    def _next(self, job: WaitingJob) -> WaitReason:
        """Return the reason of a job for which something is kept."""
        if claim := self._claims.get(job.id):
            victims = tuple(each.id for each in self._victims(job))
            reason = self._beyond(job) or WaitReason(missing=Missing.VICTIMS, jobs=victims)
            return replace(reason, next=True, starts_at=claim.reservation.at)
        assert self._kept is not None, "it has the reservation"
        reason = self._lacking(job)
        details = (*reason.details, *self._kept.no_end())
        return replace(reason, next=True, starts_at=self._kept.reservation.at, details=details)

    def _lacking(self, job: WaitingJob) -> WaitReason:
        """Return what is missing of the machine for a job."""
        needs, idle = job.needs, self._idle
        if (reason := self._beyond(job)) is not None:
            return reason
        cpus, memory, count = idle.cpus_of(needs), needs.memory or 0, device_count(needs)
        usable = idle.devices.keys() - job.avoid
        if named := tuple(name for name in needs.on if name not in usable):
            jobs = self._holders.of(named)
            return WaitReason(missing=Missing.DEVICES, needs=count, free=len(usable), jobs=jobs, devices=named)
        if count > len(usable):
            jobs = self._holders.devices
            return WaitReason(missing=Missing.DEVICES, needs=count, free=len(usable), jobs=jobs)
        if cpus > idle.cpus:
            return WaitReason(missing=Missing.CPUS, needs=cpus, free=max(idle.cpus, 0), jobs=self._holders.cpus)
        if memory > idle.memory:
            free = int(max(idle.memory, 0))
            return WaitReason(missing=Missing.MEMORY, needs=memory, free=free, jobs=self._holders.memory)
        return self._kept_from(job)

    def _kept_from(self, job: WaitingJob) -> WaitReason:
        """Return for which job that is kept which this one could have now."""
        if not self._free.has_room(job):
            kept = tuple(claim.reservation for claim in self._claims.values())
            details: tuple[str, ...] = ()
        else:
            assert self._kept is not None and self._kept.job is not job, f"{job.id} lacks nothing and was not started"
            kept, details = (self._kept.reservation,), self._kept.no_end()
            if self._usage.crowds_out(self._kept.job, job, self._free):
                details = (f"its start would bring job {self._kept.job.id} over a limit",)
        return WaitReason(
            missing=Missing.KEPT,
            needs=device_count(job.needs),
            jobs=tuple(each.job for each in kept),
            devices=tuple(name for each in kept for name in each.devices),
            since=min(each.since for each in kept),
            details=details,
        )

    @cached_property
    def _holders(self) -> Holders:
        return Holders((*map(self._held, self._running.values()), *self._begun.values()))

    # The next look

    def wake_at(self, order: Sequence[WaitingJob], reasons: Mapping[str, WaitReason]) -> float | None:
        """Return the next moment at which a job may start or rise though nothing happens."""
        now, age_s, soon = self._now, self._policy.age_s, math.inf
        for job in order:
            reason = reasons.get(job.id)
            if reason is not None and reason.missing is Missing.TIME and reason.starts_at is not None:
                soon = min(soon, reason.starts_at)
            elif reason is not None and reason.its_turn:
                soon = min(soon, now + age_s - job.eligible(now) % age_s)
        for victim in self._running.values() if self._kept is not None else ():
            moment = spared_until(victim, self._policy, now)
            if victim.preemptible and not victim.draining and moment > now:
                soon = min(soon, moment)
        return soon if soon < math.inf else None


def _kind(job: WaitingJob) -> tuple[object, ...]:
    """Return what decides, besides its turn, whether a job starts: equal jobs are looked at once."""
    return job.needs, job.avoid, job.time_s, job.user, job.groups, job.array
