"""When and where the first job that cannot start will start: from the ends of what runs, known or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from holdfast.decide.queue.device_choice import choose_devices
from holdfast.decide.queue.free_capacity import Capacity, device_count
from holdfast.decide.queue.queue_model import Reservation, WaitingJob


class Held:
    """What a job has from now until its end. `ends`: infinite, if it is not known."""

    __slots__ = ("cpus", "devices", "ends", "job", "memory", "since")

    def __init__(
        self, job: str, devices: Iterable[str], cpus: int, memory: int | None, *, since: float, ends: float
    ) -> None:
        self.job, self.devices, self.cpus, self.memory = job, tuple(devices), cpus, memory
        self.since, self.ends = since, ends


class Kept:
    """What is kept for a job. `cpus` and `memory` are what others may take beside it."""

    __slots__ = ("cpus", "devices", "memory", "reservation", "unlimited")

    def __init__(self, reservation: Reservation, cpus: int, memory: float, unlimited: Sequence[str] = ()) -> None:
        self.reservation, self.cpus, self.memory = reservation, cpus, memory
        self.devices = frozenset(reservation.devices)
        #: The jobs without a known end that it waits for.
        self.unlimited = tuple(unlimited)

    def is_over_by(self, ends: float) -> bool:
        """Return whether a job that starts now and ends then is over before the kept things are needed."""
        return not self.reservation.claim and self.reservation.at is not None and ends <= self.reservation.at


def reserve(now: float, job: WaitingJob, free: Capacity, held: Iterable[Held]) -> Kept:
    """Return the reservation of a job that does not fit into `free`, and fits into the machine.

    The holders are taken out in the order of their ends until the job fits. Holders without a known end come last:
    those first whose devices were reserved before, then those that have run longest. `free` changes.
    """
    needs, earlier = job.needs, job.reservation
    named = frozenset(earlier.devices if earlier else ())
    cpus, memory = free.cpus_of(needs), needs.memory or 0
    at_once = frozenset(free.devices)
    at, unlimited = now, []
    queue = sorted(held, key=lambda each: (each.ends, named.isdisjoint(each.devices), each.since, each.job))
    for each in queue:
        if each.ends > at or each.ends == math.inf:
            if free.has_room(job):
                break
            at = max(at, each.ends)
        if each.ends == math.inf:
            unlimited.append(each.job)
        free.give_back(each.devices, each.cpus, each.memory)
    known = at < math.inf
    usable = [device for device in free.devices.values() if device.name not in job.avoid]
    devices = choose_devices(device_count(needs), usable, needs.on, () if known else at_once)
    assert devices is not None, f"{job.id} fits into the machine"
    since = earlier.since if earlier and not earlier.claim else now
    reservation = Reservation(job=job.id, devices=devices, at=at if known else None, since=since)
    return Kept(reservation, free.cpus - cpus, free.memory - memory, unlimited)
