"""CPU numbers as text: the kernel's lists (`0-3,8`), and the cores of a memory domain, which is a NUMA node
(`0+64,1+65,2`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable


def cpus_of(text: str) -> set[int]:
    """Return the CPUs in a list of the kernel's form, such as `0-3,8`. Raise ValueError if the text is no such list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers as a list of the kernel's form, such as `0-3,8`."""
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def cores_of(domain: str) -> list[tuple[int, ...]]:
    """Return the cores of a memory domain (NUMA node), from text such as `0+64,1+65,2`. Each core is a tuple of its
    CPUs (hardware threads). Raise ValueError for other text.
    """
    return [tuple(int(cpu) for cpu in core.split("+")) for core in domain.split(",") if core]


def domain_of(cores: Iterable[Iterable[int]]) -> str:
    """Return cores as text that `cores_of` reads: `0+64,1+65,2`."""
    return ",".join("+".join(map(str, core)) for core in cores)
