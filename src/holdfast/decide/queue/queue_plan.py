"""Plans the queue of one machine: what starts now and where, who is preempted, what is kept, and why the rest waits.

The first job that cannot start gets a reservation: a moment from the known ends of what runs, or only devices if an end
is not known. A later job starts if it ends before that moment, or if it leaves what the reservation needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.decide.queue.device_choice import choose_devices
from holdfast.decide.queue.free_capacity import Capacity, device_count
from holdfast.decide.queue.queue_limits import Usage, never_fits
from holdfast.decide.queue.queue_model import FairShare, Machine, Policy, Reservation, RunningJob, WaitingJob, gib
from holdfast.decide.queue.queue_order import in_order
from holdfast.decide.queue.queue_reservation import Held, Kept, reserve
from holdfast.decide.queue.victim_choice import choose_victims, spared_until
from holdfast.decide.queue.wait_reason import Missing, WaitReason
from holdfast.model.human_format import counted
from holdfast.model.noun_base import Noun

__all__ = ["Plan", "Preemption", "Reservation", "Start", "WaitReason", "never_fits", "plan"]


class Start(Noun, frozen=True, kw_only=True):
    job: str
    devices: tuple[str, ...] = ()
    cpus: int


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
        reservations=tuple(kept.reservation for kept in planner.kept),
        reasons=reasons,
        wake_at=planner.wake_at(order, reasons),
    )


class _Planner:
    """One plan as it grows. What is free only becomes less, so a job that does not fit does not fit later either."""

    def __init__(self, now: float, machine: Machine, running: Iterable[RunningJob], policy: Policy) -> None:
        self._now, self._machine, self._policy = now, machine, policy
        self._running = {job.id: job for job in running}
        self._free = Capacity(machine, policy)
        self._usage = Usage(policy, self._running.values())
        self._claims: dict[str, Held] = {}
        self._begun: dict[str, Held] = {}
        self._reserved = ""
        self._low = machine.available is not None and machine.available <= policy.reserve_memory
        self.kept: list[Kept] = []
        self.starts: list[Start] = []
        self.preemptions: list[Preemption] = []
        for job in self._running.values():
            self._free.take(job.devices, job.has_cpus, job.needs.memory)

    # Starts

    def start(self, order: Sequence[WaitingJob]) -> None:
        """Start what can start, and reserve for the first job that cannot."""
        for job in order:
            if job.reservation is not None and job.reservation.claim:
                self._resume_claim(job, job.reservation)
        refused: set[tuple[object, ...]] = set()
        for job in order:
            key = (job.needs, job.avoid, job.time_s)
            if key in refused or job.id in self._begun or job.id in self._claims or self._not_its_turn(job):
                continue
            devices = self._place(job)
            if devices is not None:
                self._begin(job, devices)
            elif self._reserved or self._beyond(job):
                refused.add(key)
            else:
                self._reserve(job)

    def _begin(self, job: WaitingJob, devices: tuple[str, ...]) -> None:
        cpus, memory, ends = self._free.cpus_of(job.needs), job.needs.memory, self._ends(job, self._now)
        self._free.take(devices, cpus, memory)
        for kept in self.kept:
            if not kept.is_over_by(ends):
                kept.cpus -= cpus
                kept.memory -= memory or 0
        self._begun[job.id] = Held(job.id, devices, cpus, memory, since=self._now, ends=ends)
        self._usage.add(job, len(devices), cpus)
        self.starts.append(Start(job=job.id, devices=devices, cpus=cpus))

    def _place(self, job: WaitingJob) -> tuple[str, ...] | None:
        """Return the devices on which a job may start now; None if it may not."""
        needs, free = job.needs, self._free
        cpus, memory, count = free.cpus_of(needs), needs.memory or 0, device_count(needs)
        if cpus > free.cpus or memory > free.memory or count > len(free.devices):
            return None
        if self._low and needs.memory is None:
            return None
        ends, closed = self._ends(job, self._now), set(job.avoid)
        for kept in self.kept:
            if not kept.is_over_by(ends):
                if cpus > kept.cpus or memory > kept.memory:
                    return None
                closed |= kept.devices
        if not count:
            return ()
        usable = [device for device in free.devices.values() if device.name not in closed]
        return choose_devices(count, usable, needs.on)

    def _ends(self, job: WaitingJob, start: float) -> float:
        time_s = self._policy.assume_time_s if job.time_s is None else job.time_s
        return math.inf if time_s is None else start + time_s

    # Reservations and preemption

    def _reserve(self, job: WaitingJob) -> None:
        """Preempt for the first job that cannot start, or reserve for it."""
        free = self._free.copy()
        for claim in self._claims.values():
            free.take(claim.devices, claim.cpus, claim.memory)
        held = [self._held(each) for each in self._running.values()]
        kept = reserve(self._now, job, free, (*held, *self._claims.values(), *self._begun.values()))
        if not self._preempt(job, math.inf if kept.reservation.at is None else kept.reservation.at):
            self.kept.append(kept)
            self._reserved = job.id

    def _held(self, job: RunningJob) -> Held:
        claimed = [name for claim in self._claims.values() for name in claim.devices]
        devices = [name for name in job.devices if name not in claimed]
        ends = job.ends_at
        if ends is None and job.draining:
            ends = self._now + job.leaves_s
        if ends is None and self._policy.assume_time_s is not None:
            assumed = job.started_at + self._policy.assume_time_s
            ends = assumed if assumed > self._now else None
        ends = math.inf if ends is None else max(ends, self._now)
        return Held(job.id, devices, job.has_cpus, job.needs.memory, since=job.started_at, ends=ends)

    def _preempt(self, job: WaitingJob, starts_at: float) -> bool:
        """Preempt jobs if `job` starts earlier by it, and claim for it what they leave."""
        if not self._usage.preempts(job):
            return False
        free = self._after_claims()
        free.cpus, free.memory = min(free.cpus, self._free.cpus), min(free.memory, self._free.memory)
        for name in free.devices.keys() - self._free.devices.keys():
            del free.devices[name]

        def enough(victims: Sequence[RunningJob]) -> bool:
            after = free.copy()
            for victim in victims:
                after.give_back(victim.devices, victim.has_cpus, victim.needs.memory)
            return after.has_room(job)

        victims = choose_victims(self._now, job, self._running.values(), self._policy, enough)
        leave_by = self._now + max((victim.leaves_s for victim in victims), default=0.0)
        if not victims or starts_at <= leave_by:
            return False
        for victim in victims:
            free.give_back(victim.devices, 0, None)
        usable = [device for device in free.devices.values() if device.name not in job.avoid]
        devices = choose_devices(device_count(job.needs), usable, job.needs.on)
        assert devices is not None, "the victims are enough"
        claim = Reservation(job=job.id, devices=devices, at=leave_by, since=self._now, claim=True)
        self._claim(job, claim, victims)
        return True

    def _after_claims(self) -> Capacity:
        """Return what is free when all preempted jobs have left, and all claims are met."""
        free = self._free.copy()
        for job in self._running.values():
            if job.drains_for:
                free.give_back(job.devices, job.has_cpus, job.needs.memory)
        for claim in self._claims.values():
            free.take(claim.devices, claim.cpus, claim.memory)
        return free

    def _claim(self, job: WaitingJob, claim: Reservation, victims: Sequence[RunningJob]) -> None:
        """Keep for a job what its victims leave."""
        for victim in victims:
            leaves = self._now + victim.leaves_s
            self._running[victim.id] = replace(victim, draining=True, drains_for=job.id, ends_at=leaves)
            self.preemptions.append(Preemption(victim=victim.id, for_job=job.id))
        cpus, memory = self._free.cpus_of(job.needs), job.needs.memory
        ends = self._ends(job, max(self._now, claim.at or self._now))
        self._claims[job.id] = Held(job.id, claim.devices, cpus, memory, since=self._now, ends=ends)
        rest = self._after_claims()
        self.kept.append(Kept(claim, rest.cpus, rest.memory))
        for kept in self.kept:
            kept.cpus, kept.memory = rest.cpus, rest.memory
        self._usage.add(job, len(claim.devices), cpus)

    def _resume_claim(self, job: WaitingJob, claim: Reservation) -> None:
        """Start a job for which others have left, or keep its claim. A claim that cannot be met any more is void."""
        needs, devices = job.needs, set(claim.devices)
        if self._not_its_turn(job) or self._beyond(job) or len(devices) != device_count(needs):
            return
        if not devices >= set(needs.on) or devices.intersection(job.avoid):
            return
        cpus, memory = self._free.cpus_of(needs), needs.memory or 0
        if not self._after_claims().holds(devices, cpus, memory):
            return
        if self._free.holds(devices, cpus, memory):
            self._begin(job, claim.devices)
        else:
            self._claim(job, claim, ())

    # Reasons

    def reasons(self, order: Sequence[WaitingJob]) -> dict[str, WaitReason]:
        """Return a reason for each job that is not started."""
        found: dict[str, WaitReason] = {}
        equal: dict[tuple[object, ...], WaitReason] = {}
        for job in order:
            if job.id in self._begun:
                continue
            reason = self._not_its_turn(job)
            if reason is None:
                key = (job.needs, job.avoid, job.time_s)
                if job.id == self._reserved or job.id in self._claims:
                    reason = self._next(job)
                else:
                    reason = equal.get(key)
                    if reason is None:
                        reason = equal[key] = self._lacking(job)
            found[job.id] = reason
        return found

    def _not_its_turn(self, job: WaitingJob) -> WaitReason | None:
        """Return what is missing besides its turn; None: nothing."""
        if job.held:
            return WaitReason(missing=Missing.RELEASE, details=(job.held,))
        if job.after:
            return WaitReason(missing=Missing.DEPENDENCY, jobs=job.after)
        if job.not_before is not None and job.not_before > self._now:
            return WaitReason(missing=Missing.TIME, starts_at=job.not_before)
        if self._policy.limits and job.id not in self._claims:
            devices, cpus = device_count(job.needs), self._free.cpus_of(job.needs)
            if text := self._usage.over_limit(job, devices, cpus):
                return WaitReason(missing=Missing.LIMIT, details=(text,))
        if job.array_limit and job.id not in self._claims and self._usage.arrays[job.array] >= job.array_limit:
            return WaitReason(missing=Missing.ARRAY, needs=job.array_limit, free=self._usage.arrays[job.array])
        return None

    def _beyond(self, job: WaitingJob) -> WaitReason | None:
        """Return what the machine cannot give at present, whichever jobs end; None: nothing."""
        needs, free = job.needs, self._free
        details = []
        usable = free.given.keys() - job.avoid if job.avoid or needs.on else free.given.keys()
        count = device_count(needs)
        if count > len(usable) or (needs.on and not usable >= set(needs.on)):
            details.append(f"needs {counted(count, 'device')}, and {len(usable)} of the machine's can be given to it")
            named = needs.on or tuple(device.name for device in self._machine.devices)
            out = {device.name: f"{device.name} is {device.state}" for device in self._machine.devices}
            for device in self._machine.devices:
                if device.name in named and device.name in job.avoid:
                    details.append(f"the job has failed on {device.name} and avoids it")
                elif device.name in named and not device.given:
                    details.append(f"{out[device.name]}: {device.reason}" if device.reason else out[device.name])
        if not needs.exclusive and needs.cpus > free.all_cpus:
            details.append(f"needs {needs.cpus} CPUs, and the machine gives {free.all_cpus}")
        if free.all_memory is not None and (needs.memory or 0) > free.all_memory:
            details.append(f"needs {gib(needs.memory or 0)} of memory, and the machine gives {gib(free.all_memory)}")
        if details:
            return WaitReason(missing=Missing.MACHINE, needs=count, free=len(usable), details=tuple(details))
        if self._low and needs.memory is None:
            return WaitReason(missing=Missing.AVAILABLE)
        return None

    def _next(self, job: WaitingJob) -> WaitReason:
        """Return the reason of a job for which something is kept."""
        kept = next(kept for kept in self.kept if kept.reservation.job == job.id)
        reason = self._beyond(job)
        if reason is not None:
            return reason
        victims = tuple(each.id for each in self._running.values() if each.drains_for == job.id)
        if victims:
            reason = WaitReason(missing=Missing.VICTIMS, jobs=victims)
        else:
            reason = self._lacking(job)
        no_end = tuple(f"job {name} has no --time" for name in kept.unlimited[:3])
        return replace(reason, next=True, starts_at=kept.reservation.at, details=reason.details + no_end)

    def _lacking(self, job: WaitingJob) -> WaitReason:
        """Return what is missing of the machine for a job."""
        needs, free = job.needs, self._free
        if (reason := self._beyond(job)) is not None:
            return reason
        cpus, memory, count = free.cpus_of(needs), needs.memory or 0, device_count(needs)
        if cpus > free.cpus:
            jobs = self._holders(lambda held: held.cpus > 0)
            return WaitReason(missing=Missing.CPUS, needs=cpus, free=max(free.cpus, 0), jobs=jobs)
        if memory > free.memory:
            jobs = self._holders(lambda held: bool(held.memory))
            return WaitReason(missing=Missing.MEMORY, needs=memory, free=int(max(free.memory, 0)), jobs=jobs)
        usable = free.devices.keys() - job.avoid
        if named := tuple(name for name in needs.on if name not in usable):
            jobs = self._holders(lambda held: not set(named).isdisjoint(held.devices))
            return WaitReason(missing=Missing.DEVICES, needs=count, free=len(usable), jobs=jobs, devices=named)
        if count > len(usable):
            jobs = self._holders(lambda held: bool(held.devices))
            return WaitReason(missing=Missing.DEVICES, needs=count, free=len(usable), jobs=jobs)
        ends = self._ends(job, self._now)
        for kept in self.kept:
            if kept.is_over_by(ends) or kept.reservation.job == job.id:
                continue
            usable -= kept.devices
            short = cpus > kept.cpus or memory > kept.memory
            if short or count > len(usable) or not usable >= set(needs.on):
                no_end = tuple(f"job {name} has no --time" for name in kept.unlimited[:3])
                return WaitReason(
                    missing=Missing.KEPT,
                    needs=count,
                    free=len(usable),
                    jobs=(kept.reservation.job,),
                    devices=() if short else kept.reservation.devices,
                    since=kept.reservation.since,
                    details=no_end,
                )
        raise AssertionError(f"{job.id} lacks nothing and was not started")

    def _holders(self, has: Callable[[Held], bool]) -> tuple[str, ...]:
        everyone = (*map(self._held, self._running.values()), *self._begun.values())
        return tuple(held.job for held in everyone if has(held))

    # The next look

    def wake_at(self, order: Sequence[WaitingJob], reasons: Mapping[str, WaitReason]) -> float | None:
        """Return the next moment at which a job may start or rise though nothing happens."""
        now, age_s = self._now, self._policy.age_s
        soon = math.inf
        first = None
        for job in order:
            reason = reasons.get(job.id)
            if reason is None:
                continue
            if reason.missing is Missing.TIME and reason.starts_at is not None:
                soon = min(soon, reason.starts_at)
            elif reason.its_turn:
                soon = min(soon, now + age_s - job.eligible(now) % age_s)
            if job.id == self._reserved:
                first = job
        for victim in self._running.values():
            if first and victim.preemptible and not victim.draining and victim.priority < first.priority:
                moment = spared_until(victim, self._policy, now)
                if moment > now:
                    soon = min(soon, moment)
        return soon if soon < math.inf else None
