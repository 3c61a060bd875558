"""The CPUs that this process may use, as the kernel groups them: memory domains, and cores with their threads."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from holdfast.model.cpu_lists import cpus_of, domain_of
from holdfast.model.noun_base import Noun
from holdfast.observe.checks.cpu import usable_cores
from holdfast.observe.devices.device_discovery import gpu_addresses


class Cpus(Noun, frozen=True, kw_only=True):
    """The resources that workers may have to themselves."""

    count: int
    #: Number of a memory domain (NUMA node) → its cores, `0+64,1+65`; empty: no worker can be bound to a core.
    domains: dict[int, str] = {}
    #: `gpu3` → its memory domain.
    near: dict[str, int] = {}


def cpus_here() -> Cpus:
    """This machine's CPUs, as far as a quota allows them.

    With a quota below the number of CPUs, other containers share them in the same way: a fixed place on the first ones
    would be worse than the kernel's own placement.
    """
    allowed = os.sched_getaffinity(0)
    count = int(usable_cores())
    if count < len(allowed):
        return Cpus(count=count)
    return Cpus(count=count, domains=domains(allowed, taken=taken_by_others(allowed)), near=near_devices())


def taken_by_others(allowed: Collection[int], root: Path = Path("/")) -> set[int]:
    """The CPUs that other processes are bound to, such as another job's workers.

    A process that may run on more than half of `allowed` is bound to a part of the machine, and to no core of its own.
    """
    found: set[int] = set()
    for folder in (root / "proc").iterdir():
        status = _read(folder / "status") if folder.name.isdigit() else ""
        if "\nVmSize:" not in status:
            continue  # the kernel's own, or gone
        for line in status.splitlines():
            name, _, text = line.partition(":")
            if name == "Cpus_allowed_list":
                bound = _list(text)
                found |= bound if len(bound) <= len(allowed) // 2 else set()
    return found


def domains(allowed: Collection[int], root: Path = Path("/"), taken: Collection[int] = ()) -> dict[int, str]:
    """Number of a memory domain → its cores, those that others have `taken` last.

    `allowed`: the CPUs of this process: a control group's cpuset and an affinity limit it.
    """
    mine = set(allowed)
    found: dict[int, str] = {}
    for number, cpus in sorted(_nodes(root).items()):
        if here := cpus & mine:
            found[number] = domain_of(_cores(here, root, taken))
            mine -= here
    if mine:
        # A kernel without NUMA, or one that shows nothing of it here.
        found[max(found, default=-1) + 1] = domain_of(_cores(mine, root, taken))
    return found


def near_devices(root: Path = Path("/")) -> dict[str, int]:
    """`gpu3` → the number of its memory domain, for the devices of which the kernel tells it."""
    found: dict[str, int] = {}
    for address, device in gpu_addresses(root).items():
        text = _read(root / "sys/bus/pci/devices" / f"{address}.0" / "numa_node").strip()
        if text.isdigit():  # -1: it is not told
            found[device] = int(text)
    return found


def _nodes(root: Path) -> dict[int, set[int]]:
    try:
        names = [folder.name for folder in (root / "sys/devices/system/node").iterdir()]
    except OSError:
        return {}
    numbers = [name.removeprefix("node") for name in names if name.startswith("node")]
    return {
        int(number): _list(_read(root / f"sys/devices/system/node/node{number}/cpulist"))
        for number in numbers
        if number.isdigit()
    }


def _cores(cpus: set[int], root: Path, taken: Collection[int]) -> list[tuple[int, ...]]:
    """Cores in the order of their first CPUs, those that others use last."""
    left, cores = set(cpus), []
    for cpu in sorted(cpus):
        if cpu in left:
            told = _list(_read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            siblings = (told & left) | {cpu}
            cores.append(tuple(sorted(siblings)))
            left -= siblings
    return sorted(cores, key=lambda core: any(cpu in taken for cpu in core))


def _list(text: str) -> set[int]:
    try:
        return cpus_of(text)
    except ValueError:
        return set()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
