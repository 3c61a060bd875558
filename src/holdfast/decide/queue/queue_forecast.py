"""When the next jobs of the queue are expected to start, if nothing is submitted and each one runs until its limit."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from itertools import islice

from holdfast.decide.queue.device_choice import choose_devices
from holdfast.decide.queue.free_capacity import Capacity, device_count
from holdfast.decide.queue.queue_model import WaitingJob
from holdfast.decide.queue.queue_reservation import Held

_MOST_JOBS = 100


def forecast(
    now: float,
    jobs: Iterable[WaitingJob],
    free: Capacity,
    held: Iterable[Held],
    ends: Callable[[WaitingJob, float], float],
) -> dict[str, float]:
    """Return the expected starts of the first jobs, none before the job ahead of it. `free` changes.

    It ends at the first job that waits for an end that is not known. `ends` returns the end of a job from its start.
    """
    expected: dict[str, float] = {}
    at, leaving = now, [(each.ends, each.job, each) for each in held if each.ends < math.inf]
    heapq.heapify(leaving)
    for job in islice(jobs, _MOST_JOBS):
        while not free.has_room(job) and leaving:
            moment, _, gone = heapq.heappop(leaving)
            at = max(at, moment)
            free.give_back(gone.devices, gone.cpus, gone.memory)
        if not free.has_room(job):
            break
        usable = [device for name, device in free.devices.items() if name not in job.avoid]
        devices = choose_devices(device_count(job.needs), usable, job.needs.on)
        assert devices is not None, "there is room"
        cpus, end = free.cpus_of(job.needs), ends(job, at)
        free.take(devices, cpus, job.needs.memory)
        if end < math.inf:
            new = Held(job.id, devices, cpus, job.needs.memory, since=at, ends=end)
            heapq.heappush(leaving, (end, job.id, new))
        expected[job.id] = at
    return expected
