"""Who sits where: the ranks of an attempt on the nodes that may be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from holdfast.model.jobs import JobSpec, NodeInfo, Seat


def usable(nodes: Sequence[NodeInfo], avoid: Collection[str]) -> tuple[NodeInfo, ...]:
    """The nodes not avoided, each less its avoided devices; one whose devices are all avoided drops out."""
    kept = []
    for node in nodes:
        if node.name in avoid:
            continue
        devices = tuple(device for device in node.devices if device not in avoid)
        if node.devices and not devices:
            continue
        lost = len(node.devices) - len(devices)
        kept.append(NodeInfo(name=node.name, slots=max(node.slots - lost, 0), devices=devices))
    return tuple(kept)


def users(device: str, seats: Sequence[Seat], nodes: Sequence[NodeInfo]) -> tuple[int, ...]:
    """The ranks that use a device, or a node by its name.

    Of several workers each has its own device. One alone on its node may drive all that it sees.
    """
    own = tuple(seat.rank for seat in seats if device in (seat.device, seat.node))
    if own:
        return own
    whole = {node.name: node.devices for node in nodes}
    crowd = Counter(seat.node for seat in seats)
    return tuple(
        seat.rank for seat in seats if crowd[seat.node] == 1 and device in (seat.visible or whole.get(seat.node, ()))
    )


def place(spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str]) -> tuple[Seat, ...] | None:
    """Seats for every rank, nodes filled in order; None where the healthy ones have too few places.

    Ranks run through the roles in the order of the job; a role's own ranks are consecutive. Where a node lists devices,
    local rank i gets the i-th device that may be used.
    """
    whole = {node.name: node.devices for node in nodes}
    free = [(node, local) for node in usable(nodes, avoid) for local in range(node.slots)]
    if len(free) < spec.world_size:
        return None
    seats: list[Seat] = []
    for role in spec.roles:
        for role_rank in range(role.count):
            node, local = free[len(seats)]
            device = node.devices[local] if local < len(node.devices) else ""
            seats.append(
                Seat(
                    rank=len(seats),
                    role=role.name,
                    role_rank=role_rank,
                    node=node.name,
                    local_rank=local,
                    device=device,
                    visible=node.devices if node.devices != whole[node.name] else (),
                )
            )
    return tuple(seats)
