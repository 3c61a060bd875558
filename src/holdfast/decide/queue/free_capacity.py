"""What of the machine may be promised, and the part of it that is free."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from holdfast.decide.queue.queue_model import Machine, Needs, Policy, WaitingJob


class Capacity:
    """The CPUs, memory and devices that may be promised, and the part that is free. The free part changes as jobs take
    and give back.
    """

    __slots__ = ("all_cpus", "all_memory", "cpus", "devices", "given", "memory")

    def __init__(self, machine: Machine, policy: Policy) -> None:
        self.all_cpus = max(machine.cpus - policy.reserve_cpus, 1)
        self.all_memory = None if machine.memory is None else max(machine.memory - policy.reserve_memory, 0)
        self.cpus = self.all_cpus
        self.memory = math.inf if self.all_memory is None else float(self.all_memory)
        #: All devices that may be given, by name.
        self.given = {device.name: device for device in machine.devices if device.given}
        #: The free ones of them.
        self.devices = dict(self.given)

    def copy(self) -> Capacity:
        other = object.__new__(Capacity)
        other.all_cpus, other.all_memory, other.given = self.all_cpus, self.all_memory, self.given
        other.cpus, other.memory, other.devices = self.cpus, self.memory, dict(self.devices)
        return other

    def cpus_of(self, needs: Needs) -> int:
        """Return the CPUs that a job gets."""
        return self.all_cpus if needs.exclusive else max(needs.cpus, 1)

    def take(self, devices: Iterable[str], cpus: int, memory: float | None) -> None:
        self.cpus -= cpus
        self.memory -= memory or 0
        for name in devices:
            self.devices.pop(name, None)

    def give_back(self, devices: Iterable[str], cpus: int, memory: float | None) -> None:
        self.cpus += cpus
        self.memory += memory or 0
        for name in devices:
            if name in self.given:
                self.devices[name] = self.given[name]

    def holds(self, devices: Collection[str], cpus: int, memory: float) -> bool:
        """Return whether all of this is free."""
        return cpus <= self.cpus and memory <= self.memory and all(name in self.devices for name in devices)

    def has_room(self, job: WaitingJob) -> bool:
        """Return whether a job fits, on any devices that it does not avoid."""
        needs, count = job.needs, device_count(job.needs)
        if self.cpus_of(needs) > self.cpus or (needs.memory or 0) > self.memory or count > len(self.devices):
            return False
        usable = self.devices.keys() - job.avoid
        return count <= len(usable) and usable >= set(needs.on)


def device_count(needs: Needs) -> int:
    return max(needs.devices, len(needs.on))
