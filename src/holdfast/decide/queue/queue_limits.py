"""What users and groups may have at once, and what the machine can never give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.decide.queue.free_capacity import Capacity, device_count
from holdfast.decide.queue.queue_model import Limits, Machine, Needs, Policy, Priority, RunningJob, WaitingJob, gib
from holdfast.model.human_format import counted, duration

_NO_LIMITS = Limits()


class Usage:
    """What users, groups and arrays have at present: running jobs, devices, CPUs."""

    def __init__(self, policy: Policy, running: Iterable[RunningJob]) -> None:
        self._limits = policy.limits
        self._has = Counter[tuple[str, str]]()
        self.arrays = Counter[str]()
        for job in running:
            if job.array or self._limits:
                self.add(job, len(job.devices), job.has_cpus)

    def add(self, job: WaitingJob | RunningJob, devices: int, cpus: int, times: int = 1) -> None:
        if job.array:
            self.arrays[job.array] += times
        for owner in _owners(job) if self._limits else ():
            for kind, more in (("job", 1), ("device", devices), ("CPU", cpus)):
                self._has[kind, owner] += times * more

    def over_limit(self, job: WaitingJob, devices: int, cpus: int) -> str:
        """Return the sentence about the limit that a start of the job would exceed; empty: none."""
        for owner in _owners(job) if self._limits else ():
            limits = self.limits_of(owner)
            most_of = (("job", limits.running, 1), ("device", limits.devices, devices), ("CPU", limits.cpus, cpus))
            for kind, most, more in most_of:
                has = self._has[kind, owner]
                if most is not None and more and has + more > most:
                    return f"{_who(owner)} may have {counted(most, kind)} at once and has {has}: the job needs {more}"
        return ""

    def crowds_out(self, kept: WaitingJob, job: WaitingJob, capacity: Capacity) -> bool:
        """Return whether a start of `job` would bring the job for which something is kept over a limit."""
        if not self._limits and not kept.array_limit:
            return False
        self.add(job, device_count(job.needs), capacity.cpus_of(job.needs))
        over = self.over_limit(kept, device_count(kept.needs), capacity.cpus_of(kept.needs))
        full = 0 < kept.array_limit <= self.arrays[kept.array]
        self.add(job, device_count(job.needs), capacity.cpus_of(job.needs), times=-1)
        return bool(over) or full

    def preempts(self, job: WaitingJob) -> bool:
        """Return whether jobs of this user and these groups may preempt others."""
        return all(self.limits_of(owner).preempts for owner in _owners(job))

    def limits_of(self, owner: str) -> Limits:
        everyone = _NO_LIMITS if owner.startswith("@") else self._limits.get("", _NO_LIMITS)
        return self._limits.get(owner, everyone)


def _owners(job: WaitingJob | RunningJob) -> tuple[str, ...]:
    return (job.user, *(f"@{group}" for group in job.groups))


def beyond(machine: Machine, capacity: Capacity, job: WaitingJob) -> tuple[str, ...]:
    """Return in words what the machine cannot give to a job at present, whichever jobs end."""
    needs, given, count = job.needs, capacity.given, device_count(job.needs)
    details = []
    usable = given.keys() - job.avoid if job.avoid else given.keys()
    if count > len(usable) or (needs.on and not usable >= set(needs.on)):
        details.append(f"needs {counted(count, 'device')}, and could get {len(usable)} of this machine's")
        for device in machine.devices:
            if needs.on and device.name not in needs.on:
                continue
            if not device.given:
                details.append(f"{device.name} is {device.state}{': ' if device.reason else ''}{device.reason}")
            elif device.name in job.avoid:
                details.append(f"it has failed on {device.name} and avoids it")
    if not needs.exclusive and needs.cpus > capacity.all_cpus:
        details.append(f"needs {needs.cpus} CPUs, and this machine gives {capacity.all_cpus}")
    if capacity.all_memory is not None and (needs.memory or 0) > capacity.all_memory:
        details.append(f"needs {gib(needs.memory or 0)} of memory, and this machine gives {gib(capacity.all_memory)}")
    return tuple(details)


def never_fits(machine: Machine, needs: Needs, policy: Policy) -> str | None:
    """Return the sentence that refuses what the machine can never give; None if it can.

    Devices that are held or used by others count: they may come back.
    """
    names = [device.name for device in machine.devices]
    if unknown := [name for name in needs.on if name not in names]:
        has = f"it has {', '.join(names)}" if names else "it has no device"
        return f"this machine has no device {' and no device '.join(unknown)}: {has}"
    if (count := device_count(needs)) > len(names):
        return f"the job needs {counted(count, 'device')}, and this machine has {len(names) or 'none'}"
    capacity = Capacity(machine, policy)
    if not needs.exclusive and needs.cpus > capacity.all_cpus:
        gives = _less(capacity.all_cpus, policy.reserve_cpus)
        return f"the job needs {needs.cpus} CPUs, and this machine gives {gives}"
    most = capacity.all_memory
    if most is not None and (needs.memory or 0) > most:
        reserve = gib(policy.reserve_memory) if policy.reserve_memory else 0
        return f"the job needs {gib(needs.memory or 0)} of memory, and this machine gives {_less(gib(most), reserve)}"
    return None


def refusal(machine: Machine, job: WaitingJob, waiting: Iterable[WaitingJob], policy: Policy) -> str | None:
    """Return the sentence that refuses a job at submit; None: it is accepted, though it may wait for a limit.

    `waiting`: the jobs that wait already, tasks of arrays included.
    """
    if text := never_fits(machine, job.needs, policy):
        return text
    usage = Usage(policy, ())
    for owner in _owners(job) if policy.limits else ():
        limits, who = usage.limits_of(owner), _who(owner)
        if limits.highest is not None and job.priority > limits.highest:
            highest, typed = limits.highest.name.lower(), Priority(job.priority).name.lower()
            return f"the highest class of {who} is {highest}: the job is {typed}"
        if limits.longest_s is not None and (job.time_s is None or job.time_s > limits.longest_s):
            typed = "has no --time" if job.time_s is None else f"takes {duration(job.time_s)}"
            return f"the longest time of {who} is {duration(limits.longest_s)}: the job {typed}"
        if limits.waiting is not None:
            count = sum(owner in _owners(other) for other in waiting)
            if count >= limits.waiting:
                return f"{who} may have {counted(limits.waiting, 'waiting job')}, and has {count}"
    return None


def _who(owner: str) -> str:
    return owner.replace("@", "group ", 1)


def _less(most: object, reserve: object) -> str:
    return f"{most} ({reserve} are kept for the machine)" if reserve else f"{most}"
