"""Finds the part of this machine that the core gives to jobs: devices, CPUs and memory."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.decide.queue.queue_model import Device, Machine
from holdfast.observe.devices.device_discovery import local_devices

PRETEND_PREFIX = "pretend"


def machine_here(pretend: str) -> Machine:
    """Return this machine. `pretend`: a directory whose files `deviceN` are its devices; empty: the real devices."""
    devices = _pretended(Path(pretend)) if pretend else _real()
    # Where there are fewer CPUs than devices, each device brings one, or a job could not use the other devices.
    return Machine(devices=devices, cpus=max(cpus_here(), len(devices)), memory=_meminfo().get("MemTotal"))


def cpus_here() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def available_memory() -> int | None:
    """Return the bytes of memory that programs can get now (MemAvailable); None if the kernel does not tell."""
    return _meminfo().get("MemAvailable")


def _pretended(folder: Path) -> tuple[Device, ...]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return ()
    numbers = sorted(int(rest) for name in names if (rest := name.removeprefix("device")) != name and rest.isdigit())
    return tuple(Device(name=f"{PRETEND_PREFIX}{number}", index=number) for number in numbers)


def _real() -> tuple[Device, ...]:
    return tuple(Device(name=name, index=index) for index, name in enumerate(local_devices()))


def _meminfo() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        number, *unit = value.split()
        if unit == ["kB"] and number.isdigit():
            found[name] = int(number) * 1024
    return found
