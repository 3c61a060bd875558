"""Which devices a run may use: what the environment or the drivers show, less what the standings keep out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.model.faults import DeviceStanding
from holdfast.model.jobs import VISIBLE, JobSpec, NodeInfo
from holdfast.observe.devices.discover import local_devices


def devices_here(env: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """`gpu0`, `gpu2` … as a `*_VISIBLE_DEVICES` variable lists them, else as the drivers show them."""
    for variable, prefix in VISIBLE.items():
        if variable in env:
            numbers = [part.strip() for part in env[variable].split(",")]
            # UUIDs and MIG slices name devices that the drivers' numbers do not: nothing is hidden of those.
            return tuple(prefix + number for number in numbers if number.isascii() and number.isdigit())
    return local_devices(root)


def node_info(name: str, spec: JobSpec, devices: tuple[str, ...]) -> NodeInfo:
    """This machine as the gang sees it. Devices count as places; where there are more workers they share them."""
    return NodeInfo(name=name, slots=max(len(devices), spec.world_size), devices=devices)


def kept_out_here(home: Path, node: NodeInfo, now: float) -> tuple[DeviceStanding, ...]:
    """Of this node and its devices, those that may take no new work. Raises `HoldfastError` where that is unknown."""
    from holdfast.loop.devices.kept_out import kept_out

    mine = {node.name, *node.devices}
    return tuple(stands for stands in kept_out(str(home), node.name, now) if stands.device in mine)
