"""What jobs hold until their ends, what is kept for a job, and when the first job that cannot start will start."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from holdfast.decide.queue.device_choice import choose_devices
from holdfast.decide.queue.free_capacity import Capacity, device_count
from holdfast.decide.queue.queue_model import Reservation, RunningJob, WaitingJob

_MOST_NAMED = 3


class Held:
    """What a job has from now until its end. `ends`: infinite, if it is not known."""

    __slots__ = ("cpus", "devices", "ends", "job", "memory", "since")

    def __init__(
        self, job: str, devices: Iterable[str], cpus: int, memory: float | None, *, since: float, ends: float
    ) -> None:
        self.job, self.devices, self.cpus, self.memory = job, tuple(devices), cpus, memory or 0
        self.since, self.ends = since, ends


class Holders:
    """Which jobs hold CPUs, memory and devices."""

    def __init__(self, held: Sequence[Held]) -> None:
        self._held = held
        self.cpus = tuple(each.job for each in held)
        self.memory = tuple(each.job for each in held if each.memory)
        self.devices = tuple(each.job for each in held if each.devices)

    def of(self, devices: Collection[str]) -> tuple[str, ...]:
        return tuple(each.job for each in self._held if not set(devices).isdisjoint(each.devices))


class Claim:
    """What is kept for a job for which others leave. `surplus`: what they leave beyond its needs, at the moment by
    which they have left.
    """

    __slots__ = ("held", "reservation", "surplus")

    def __init__(self, reservation: Reservation, held: Held, surplus: Held) -> None:
        self.reservation, self.held, self.surplus = reservation, held, surplus


def claimed(
    now: float, job: WaitingJob, reservation: Reservation, victims: Sequence[RunningJob], free: Capacity
) -> Claim:
    """Take out of `free` what the victims, once they have left, do not cover of the job's needs."""
    cpus, memory, devices = free.cpus_of(job.needs), job.needs.memory or 0, reservation.devices
    left_cpus = sum(victim.has_cpus for victim in victims)
    left_memory = sum(victim.needs.memory or 0 for victim in victims)
    free.take(devices, max(cpus - left_cpus, 0), max(memory - left_memory, 0))
    left = [name for victim in victims for name in victim.devices if name not in devices]
    leave_by = max(now, reservation.at or now)
    return Claim(
        reservation,
        Held(job.id, devices, cpus, memory, since=now, ends=math.inf),
        Held(job.id, left, max(left_cpus - cpus, 0), max(left_memory - memory, 0), since=now, ends=leave_by),
    )


class Kept:
    """What is kept for the first job that cannot start. `cpus` and `memory` are what others may take beside it."""

    __slots__ = ("cpus", "devices", "job", "memory", "reservation", "unlimited")

    def __init__(
        self, job: WaitingJob, reservation: Reservation, cpus: int, memory: float, unlimited: Sequence[str]
    ) -> None:
        self.job, self.reservation, self.cpus, self.memory = job, reservation, cpus, memory
        self.devices = frozenset(reservation.devices)
        #: The jobs without a known end that it waits for.
        self.unlimited = tuple(unlimited)

    def is_over_by(self, ends: float) -> bool:
        """Return whether a job that starts now and ends then is over before the kept things are needed."""
        return self.reservation.at is not None and ends <= self.reservation.at

    def no_end(self) -> tuple[str, ...]:
        """Return in words which jobs make the moment unknown."""
        return tuple(f"job {name} has no --time" for name in self.unlimited[:_MOST_NAMED])


def reserve(now: float, job: WaitingJob, free: Capacity, held: Iterable[Held]) -> Kept:
    """Return the reservation of a job that does not fit into `free`, and fits into the machine.

    The holders are taken out in the order of their ends until the job fits. Holders without a known end come last:
    those first whose devices were reserved before, then those that have run longest. `free` changes.
    """
    needs, earlier = job.needs, job.reservation
    named = frozenset(earlier.devices if earlier else ())
    cpus, memory = free.cpus_of(needs), needs.memory or 0
    at_once = frozenset(free.devices)
    at = now
    released: list[Held] = []
    queue = sorted(held, key=lambda each: (each.ends, named.isdisjoint(each.devices), each.since, each.job))
    for each in queue:
        if each.ends > at or each.ends == math.inf:
            if free.has_room(job):
                break
            at = max(at, each.ends)
        released.append(each)
        free.give_back(each.devices, each.cpus, each.memory)
    known = at < math.inf
    if not known:
        released = _needed(job, free, released)
    usable = [device for device in free.devices.values() if device.name not in job.avoid]
    devices = choose_devices(device_count(needs), usable, needs.on, () if known else at_once)
    assert devices is not None, f"{job.id} fits into the machine"
    since = earlier.since if earlier and not earlier.claim else now
    reservation = Reservation(job=job.id, devices=devices, at=at if known else None, since=since)
    unlimited = [each.job for each in released if each.ends == math.inf]
    return Kept(job, reservation, free.cpus - cpus, free.memory - memory, unlimited)


def _needed(job: WaitingJob, free: Capacity, released: Sequence[Held]) -> list[Held]:
    """Return the holders that must leave so that the job fits. Take from `free` again what the other holders keep.

    The order in which holders leave is unknown, so later jobs may only use what is free at once.
    """
    needed = []
    for each in reversed(released):
        free.take(each.devices, each.cpus, each.memory)
        if not free.has_room(job):
            free.give_back(each.devices, each.cpus, each.memory)
            needed.append(each)
    return needed[::-1]
