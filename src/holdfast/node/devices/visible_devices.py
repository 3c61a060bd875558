"""Finds the devices that a run may use: those in the environment or of the drivers, without the excluded ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from holdfast.decide.device_binding import lack
from holdfast.decide.placement import place
from holdfast.errors import BadUsage
from holdfast.model.faults import DeviceStanding
from holdfast.model.job_spec import VISIBLE, JobSpec, NodeInfo, asked_cpus, binds
from holdfast.node import devices
from holdfast.observe.devices.device_discovery import local_devices


def devices_here(env: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """Return the devices (`gpu0`, `gpu2` …) in a `*_VISIBLE_DEVICES` variable, or else those of the drivers. `root`:
    the directory with /sys and /dev.
    """
    for variable, prefix in VISIBLE.items():
        if variable in env:
            numbers = [part.strip() for part in env[variable].split(",")]
            # UUIDs and MIG slices do not map to the drivers' numbers, so they yield no device.
            return tuple(prefix + number for number in numbers if number.isascii() and number.isdigit())
    return local_devices(root)


def node_info(name: str, spec: JobSpec, names: tuple[str, ...]) -> NodeInfo:
    """Describe this machine and its devices (`names`) for the owner. Each device is one slot. If there are more workers
    than devices, workers share devices.
    """
    return with_cpus(NodeInfo(name=name, slots=max(len(names), spec.world_size), devices=names), spec)


def with_cpus(node: NodeInfo, spec: JobSpec) -> NodeInfo:
    """Add the machine's CPUs to the node's description if the job binds workers to CPUs."""
    if not any(asked_cpus(spec, role) for role in spec.roles):
        return node
    found = devices.cpus_here()
    places = {number: at for at, number in enumerate(found.domains)}
    near = {device: places[number] for device, number in found.near.items() if number in places}
    return replace(
        node,
        cores=found.count,
        cpus=tuple(found.domains.values()),
        near={device: at for device, at in near.items() if device in node.devices},
    )


def must_fit(spec: JobSpec, job_file: str) -> None:
    """Raise `BadUsage` if this machine has too few slots for its workers even when every device is healthy. `job_file`:
    the file's name, for the message; empty: there is none.
    """
    if not binds(spec):
        return
    node = node_info("this machine", spec, devices_here(os.environ))
    if place(spec, (node,), ()) is None:
        raise BadUsage(
            f"job file {job_file}: `resources`: {lack(spec, (node,))}",
            hint=f"holdfast run --no-bind --job {job_file}   (workers then share what is there)",
        )


def kept_out_here(home: Path, node: NodeInfo, now: float) -> tuple[DeviceStanding, ...]:
    """Return the devices of this node that may take no new work, or the node itself. Raises `HoldfastError` if the
    fault log is not readable.
    """
    mine = {node.name, *node.devices}
    return tuple(stands for stands in devices.kept_out(str(home), node.name, now) if stands.device in mine)
