"""Binds workers to devices and CPU cores of a node. Pure.

A role that sets devices or CPUs (`Resources`) is bound: each of its workers sees exactly the devices reserved for it,
and no other bound worker has them. Its CPU cores are close to its devices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from holdfast.model.cpu_lists import cores_of, cpu_list
from holdfast.model.decisions import MOST_BOUND, Bound
from holdfast.model.job_spec import JobSpec, NodeInfo, Placement, Role, asked_cpus, asked_devices, binds


class WorkerShare(msgspec.Struct, frozen=True):
    """The devices and CPUs that one worker gets."""

    devices: tuple[str, ...] = ()
    #: The CPUs in the kernel's form, `0-3,8`; empty: the worker is not bound to CPUs.
    cpus: str = ""


class FreeDevices:
    """The free devices and CPUs of a node, which no worker has yet."""

    def __init__(self, node: NodeInfo, devices: Sequence[str]) -> None:
        """`devices`: the devices of the node that the job may use."""
        self._node = node
        self._devices = list(devices)
        self._domains = [cores_of(domain) for domain in node.cpus]
        self._count = node.cores if node.cores and not node.cpus else None

    def take(self, spec: JobSpec, role: Role) -> WorkerShare | None:
        """Reserve the devices and CPUs for one worker of `role`, and return them. If too few are free, return None and
        reserve nothing.
        """
        devices, cpus = asked_devices(spec, role) or 0, asked_cpus(spec, role)
        left = self.cpus_left()
        if devices > len(self._devices) or (cpus and left is not None and cpus > left):
            return None
        own, self._devices = tuple(self._devices[:devices]), self._devices[devices:]
        return WorkerShare(own, self._cores(cpus, own))

    def cpus_left(self) -> int | None:
        """Return the number of free CPUs; None if the node's CPUs are not known."""
        if not self._domains:
            return self._count
        return sum(len(core) for cores in self._domains for core in cores)

    def _cores(self, wanted: int, devices: Collection[str]) -> str:
        if not wanted or not self._domains:
            if self._count is not None:
                self._count -= wanted
            return ""
        found: list[int] = []
        for at in self._order(wanted, devices):
            found += self._of_domain(self._domains[at], wanted - len(found))
            if len(found) == wanted:
                break
        return cpu_list(found)

    def _order(self, wanted: int, devices: Collection[str]) -> list[int]:
        """Return the memory domains (NUMA nodes) in the order of preference: near the devices; with enough free CPUs;
        with the fewest free CPUs. `wanted`: the number of CPUs needed.
        """
        near = {self._node.near[device] for device in devices if device in self._node.near}
        room = [sum(map(len, cores)) for cores in self._domains]

        def key(at: int) -> tuple[bool, bool, int, int]:
            return at not in near, room[at] < wanted, room[at] if room[at] >= wanted else -room[at], at

        return sorted(range(len(self._domains)), key=key)

    def _of_domain(self, cores: list[tuple[int, ...]], wanted: int) -> list[int]:
        """Take up to `wanted` CPUs of a memory domain (NUMA node): whole cores first, CPUs of partly used
        cores last.
        """
        found: list[int] = []
        whole = max(map(len, cores), default=0)
        # Put whole cores first. The sort is stable, so equal cores stay in their order.
        cores.sort(key=lambda core: len(core) < whole)
        while cores and len(found) < wanted:
            core = cores.pop(0)
            number = wanted - len(found)
            found += core[:number]
            if core[number:]:
                cores.append(core[number:])
        return found


def bindings(placements: Sequence[Placement]) -> tuple[Bound, ...]:
    """Return the devices and CPUs of each bound worker for the attempt's record, at most `MOST_BOUND`. `placements`:
    the placement of each rank.
    """
    return tuple(
        Bound(
            rank=placement.rank,
            role=placement.role,
            node=placement.node,
            cpus=placement.cpus,
            devices=placement.visible if placement.bound else None,
        )
        for placement in placements[:MOST_BOUND]
        if placement.bound or placement.cpus
    )


def lack(spec: JobSpec, nodes: Sequence[NodeInfo]) -> str:
    """Return a clause that compares the needs of the workers with the devices and CPUs of the nodes; empty if no worker
    is bound.
    """
    if not binds(spec):
        return ""
    asked = "; ".join(text for role in spec.roles if (text := _asked(spec, role)))
    shown = [f"{node.name} has {_has(spec, node)}" for node in nodes[:4]]
    more = f" and {len(nodes) - 4} nodes more" if len(nodes) > 4 else ""
    return f"{asked}; {', '.join(shown)}{more}"


def _asked(spec: JobSpec, role: Role) -> str:
    wants = [
        text
        for text in (_number(asked_cpus(spec, role), "CPU"), _number(asked_devices(spec, role) or 0, "device"))
        if text
    ]
    if not wants:
        return ""
    who = f"each of the {role.count} workers" if role.count > 1 else "the worker"
    return f"{who} of {role.name} needs {' and '.join(wants)}"


def _has(spec: JobSpec, node: NodeInfo) -> str:
    cpus = FreeDevices(node, ()).cpus_left()
    has = []
    if any(asked_cpus(spec, role) for role in spec.roles) and cpus is not None:
        has.append(_number(cpus, "CPU"))
    if any(asked_devices(spec, role) for role in spec.roles):
        has.append(_number(len(node.devices), "device") or "no device")
    return " and ".join(has)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s'[: count != 1]}" if count else ""
