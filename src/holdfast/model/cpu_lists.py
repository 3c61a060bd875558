"""CPUs as text: the kernel's lists (`0-3,8`), and a memory domain's cores (`0+64,1+65,2`). Pure."""

from __future__ import annotations

from collections.abc import Iterable


def cpus_of(text: str) -> set[int]:
    """Return the CPUs of a list in the kernel's form. Raise ValueError if the text is no such list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def cpu_list(cpus: Iterable[int]) -> str:
    """Return the CPUs as a list in the kernel's form."""
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def cores_of(domain: str) -> list[tuple[int, ...]]:
    """Return the cores of a memory domain.

    Each core is a tuple of its CPUs (hardware threads). Raise ValueError for another text.
    """
    return [tuple(int(cpu) for cpu in core.split("+")) for core in domain.split(",") if core]


def domain_of(cores: Iterable[Iterable[int]]) -> str:
    """Return cores in the form that `cores_of` reads: `0+64,1+65,2`."""
    return ",".join("+".join(map(str, core)) for core in cores)
