"""Finds the CPUs that this process may use, by memory domain (NUMA node) and by core with its threads."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from holdfast.model.cpu_lists import cpus_of, domain_of
from holdfast.model.noun_base import Noun
from holdfast.observe.checks.cpu import usable_cores
from holdfast.observe.devices.device_discovery import gpu_addresses
from holdfast.safe_files import small_text


class Cpus(Noun, frozen=True, kw_only=True):
    """The CPUs that workers can be bound to."""

    count: int
    #: Memory domain (NUMA node) → its cores, as `0+64,1+65`; empty: no worker can be bound to a core.
    domains: dict[int, str] = {}
    #: Device, such as `gpu3` → its memory domain (NUMA node).
    near: dict[str, int] = {}


def cpus_here() -> Cpus:
    """Return the CPUs of this machine to which workers can be bound.

    If the CPU quota is below the number of CPUs, no worker can be bound (`domains` is empty). Other containers then
    share these CPUs, and the kernel schedules better than a binding to the first ones.
    """
    allowed = os.sched_getaffinity(0)
    count = int(usable_cores())
    if count < len(allowed):
        return Cpus(count=count)
    return Cpus(count=count, domains=domains(allowed, taken=taken_by_others(allowed)), near=near_devices())


def taken_by_others(allowed: Collection[int], root: Path = Path("/")) -> set[int]:
    """Return the CPUs to which other processes are bound, such as another job's workers.

    A process counts as bound if it may run on at most half of the CPUs in `allowed`. `root`: the directory with /proc.
    """
    found: set[int] = set()
    for folder in (root / "proc").iterdir():
        status = small_text(folder / "status") if folder.name.isdigit() else ""
        if "\nVmSize:" not in status:
            continue  # skip a kernel thread, and a process that has exited
        for line in status.splitlines():
            name, _, text = line.partition(":")
            if name == "Cpus_allowed_list":
                bound = _list(text)
                found |= bound if len(bound) <= len(allowed) // 2 else set()
    return found


def domains(allowed: Collection[int], root: Path = Path("/"), taken: Collection[int] = ()) -> dict[int, str]:
    """Return memory domain → its cores. Cores that other processes use (`taken`) come last.

    `allowed`: the CPUs of this process, as limited by cpuset and affinity. `root`: the directory with /sys.
    """
    mine = set(allowed)
    found: dict[int, str] = {}
    for number, cpus in sorted(_nodes(root).items()):
        if here := cpus & mine:
            found[number] = domain_of(_cores(here, root, taken))
            mine -= here
    if mine:
        # The kernel has no NUMA, or hides it from this container, so all cores form one domain.
        found[max(found, default=-1) + 1] = domain_of(_cores(mine, root, taken))
    return found


def near_devices(root: Path = Path("/")) -> dict[str, int]:
    """Return device (`gpu3`) → its memory domain, for devices whose domain the kernel knows."""
    found: dict[str, int] = {}
    for address, device in gpu_addresses(root).items():
        text = small_text(root / "sys/bus/pci/devices" / f"{address}.0" / "numa_node")
        if text.isdigit():  # skip -1, by which the kernel says that the domain is unknown
            found[device] = int(text)
    return found


def _nodes(root: Path) -> dict[int, set[int]]:
    try:
        names = [folder.name for folder in (root / "sys/devices/system/node").iterdir()]
    except OSError:
        return {}
    numbers = [name.removeprefix("node") for name in names if name.startswith("node")]
    return {
        int(number): _list(small_text(root / f"sys/devices/system/node/node{number}/cpulist"))
        for number in numbers
        if number.isdigit()
    }


def _cores(cpus: set[int], root: Path, taken: Collection[int]) -> list[tuple[int, ...]]:
    """Return the cores in the order of their first CPUs, with the cores that other processes use last."""
    left, cores = set(cpus), []
    for cpu in sorted(cpus):
        if cpu in left:
            told = _list(small_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            siblings = (told & left) | {cpu}
            cores.append(tuple(sorted(siblings)))
            left -= siblings
    return sorted(cores, key=lambda core: any(cpu in taken for cpu in core))


def _list(text: str) -> set[int]:
    try:
        return cpus_of(text)
    except ValueError:
        return set()
