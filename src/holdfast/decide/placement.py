"""Places the ranks of an attempt on nodes and devices.

It also sorts the nodes, because the order of the nodes decides the order of the ranks. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from holdfast.decide.device_binding import FreeDevices, WorkerShare
from holdfast.model.human_format import natural
from holdfast.model.job_spec import VISIBLE, JobSpec, NodeInfo, Placement, Role, asked_devices, binds


def usable(nodes: Sequence[NodeInfo], avoid: Collection[str]) -> tuple[NodeInfo, ...]:
    """Return the nodes that are not avoided, without their avoided devices.

    A node whose devices are all avoided is left out. `avoid`: the names of nodes and devices.
    """
    kept = []
    for node in nodes:
        if node.name in avoid:
            continue
        devices = tuple(
            device for device in node.devices if device not in avoid and f"{node.name}/{device}" not in avoid
        )
        if node.devices and not devices:
            continue
        if len(devices) < len(node.devices):
            slots = node.slots if _shared(node) else min(node.slots, len(devices))
            node = replace(node, slots=slots, devices=devices)
        kept.append(node)
    return tuple(kept)


def on_node(node: NodeInfo | None, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in the job of a node's devices: `node/gpu0`, because each node has a gpu0. `node` None: the job
    has one node, so the names do not change.
    """
    if node is None:
        return tuple(names)
    prefix = f"{node.name}/"
    return tuple(prefix + name if name in node.devices and not name.startswith(prefix) else name for name in names)


def names_here(names: Iterable[str], node: str) -> frozenset[str]:
    """Return the names on the node (`gpu0`) of devices that are named as in the job (`node/gpu0`)."""
    return frozenset(name.removeprefix(f"{node}/") for name in names)


def users(device: str, placements: Sequence[Placement], nodes: Sequence[NodeInfo]) -> tuple[int, ...]:
    """Return the ranks that use a device, or the ranks on a node if `device` is the name of a node.

    If a node has several workers, each uses its own device or shares devices. A single worker may use every device that
    it sees. `placements`: the placement of each rank.
    """
    own = tuple(
        placement.rank for placement in placements if device in (placement.device, placement.node, *placement.shares)
    )
    if own:
        return own
    whole = {node.name: node.devices for node in nodes}
    crowd = Counter(placement.node for placement in placements)
    alone = (placement for placement in placements if crowd[placement.node] == 1 and not placement.bound)
    return tuple(
        placement.rank for placement in alone if device in (placement.visible or whole.get(placement.node, ()))
    )


def place(spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str]) -> tuple[Placement, ...] | None:
    """Return the placement of every rank, node by node; None if the ranks do not fit on the healthy nodes.

    Ranks follow the roles in the order of the job; a role's ranks are consecutive. If a node lists devices, local rank
    i gets the i-th usable device. If it has more slots than devices, holdfast does not know which worker uses which
    device, so all workers share all devices. If the environment of a role selects devices, its workers share them. If a
    role sets devices or CPUs (`Resources`), holdfast reserves them for each worker, on the next node with enough left.
    """
    whole = {node.name: node for node in nodes}
    kept = usable(nodes, avoid)
    shares: dict[int, WorkerShare] = {}
    taken: Iterable[tuple[Role, NodeInfo, int]] | None
    per_node = any(role.per_node for role in spec.roles)
    if per_node and not binds(spec):
        taken = _by_node(spec, kept)
    elif binds(spec):
        if per_node:
            spec = _with_counts(spec, kept)
        taken = _bound(spec, kept, shares)
        if taken is None:
            return None
    else:
        free = [(node, local) for node in kept for local in range(node.slots)]
        if len(free) < spec.world_size:
            return None
        taken = _in_order(spec, free)
    placements: list[Placement] = []
    role_ranks = Counter[str]()
    for role, node, local in taken:
        role_rank = role_ranks[role.name]
        role_ranks[role.name] += 1
        visible = node.devices if node.devices != whole[node.name].devices else ()
        device, shared = "", node.devices
        named = _named(role, whole[node.name])
        share = shares.get(len(placements), WorkerShare())
        bound = bool(shares) and asked_devices(spec, role) is not None
        if bound:
            visible = share.devices
            device, shared = (visible[0], ()) if len(visible) == 1 else ("", visible)
        elif named:
            shared = tuple(name for name in named if name in node.devices)
            if not shared:
                return None
            visible = shared if shared != named else ()
        elif named is not None:
            shared = visible = ()
        elif not _shared(node):
            device, shared = (node.devices[local] if local < len(node.devices) else ""), ()
        placements.append(
            Placement(
                rank=len(placements),
                role=role.name,
                role_rank=role_rank,
                node=node.name,
                local_rank=local,
                device=device,
                shares=shared,
                visible=visible,
                bound=bound,
                cpus=share.cpus,
            )
        )
    return tuple(placements)


def workers_on(spec: JobSpec, role: Role, node: NodeInfo) -> int:
    """Return the number of a `per_node` role's workers on a node: the node's slots if the job has only this role, else
    the role's count.
    """
    return node.slots if node.slots and len(spec.roles) == 1 else role.count


def _in_order(spec: JobSpec, free: Sequence[tuple[NodeInfo, int]]) -> Iterator[tuple[Role, NodeInfo, int]]:
    places = iter(free)
    for role in spec.roles:
        for _ in range(role.count):
            node, local = next(places)
            yield role, node, local


def _bound(
    spec: JobSpec, nodes: Sequence[NodeInfo], shares: dict[int, WorkerShare]
) -> list[tuple[Role, NodeInfo, int]] | None:
    """Place the ranks of roles that set devices or CPUs; return None if they do not fit. Fills `shares`: rank → its
    devices and CPUs.
    """
    free = [FreeDevices(node, node.devices) for node in nodes]
    local = [0] * len(nodes)
    taken: list[tuple[Role, NodeInfo, int]] = []
    at = 0
    for role in spec.roles:
        for _ in range(role.count):
            # Retry a full node only after all other nodes, so that the ranks of each node stay consecutive.
            for step in range(len(nodes)):
                here = (at + step) % len(nodes)
                share = free[here].take(spec, role) if local[here] < nodes[here].slots else None
                if share is not None:
                    at = here
                    shares[len(taken)] = share
                    taken.append((role, nodes[here], local[here]))
                    local[here] += 1
                    break
            else:
                return None
    return taken


def _by_node(spec: JobSpec, nodes: Sequence[NodeInfo]) -> Iterator[tuple[Role, NodeInfo, int]]:
    local = Counter[str]()
    for role in spec.roles:
        for node in nodes:
            for _ in range(workers_on(spec, role, node)):
                yield role, node, local[node.name]
                local[node.name] += 1


def _with_counts(spec: JobSpec, nodes: Sequence[NodeInfo]) -> JobSpec:
    """Return the job with the worker numbers of its `per_node` roles filled in: their total over these nodes."""
    counts = {role.name: sum(workers_on(spec, role, node) for node in nodes) for role in spec.roles if role.per_node}
    return replace(spec, roles=tuple(replace(role, count=counts.get(role.name, role.count)) for role in spec.roles))


def _shared(node: NodeInfo) -> bool:
    """Return whether the node's workers share devices, because it has more slots than devices."""
    return 0 < len(node.devices) < node.slots


def _named(role: Role, node: NodeInfo) -> tuple[str, ...] | None:
    """Return the node's devices that the role's environment variables select; None if they select no known device."""
    for variable, prefix in VISIBLE.items():
        if variable in role.env:
            parts = [part.strip() for part in role.env[variable].split(",")]
            if parts in ([""], ["-1"]):
                return ()
            return tuple(prefix + part for part in parts if prefix + part in node.devices) or None
    return None


def order(node: NodeInfo) -> tuple[object, ...]:
    """Return a node's sort key: the `--node-rank` of its user, else its topology labels, else its name."""
    typed = node.node_rank
    return typed is None, typed or 0, tuple(map(natural, node.labels)), natural(node.name)


def fit(spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str], out: Collection[str]) -> list[NodeInfo]:
    """Return the nodes that can take part, in their order. `avoid`: nodes and devices not to use. `out`: absent nodes.

    If the number of a role's workers follows from a node's slots, a node with a missing device takes no part: it would
    change the size of the gang without a message.
    """
    whole = {node.name: node for node in nodes if node.name not in out}
    per_node = any(role.per_node for role in spec.roles)
    found = [
        whole[kept.name]
        for kept in usable(tuple(whole.values()), avoid)
        if (kept.slots == whole[kept.name].slots if per_node else kept.slots)
    ]
    return sorted(found, key=order)


def line_up(
    spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str], out: Collection[str], line: Sequence[str]
) -> list[NodeInfo]:
    """Return the nodes of the next attempt, in the order of their ranks; empty if there are too few.

    `avoid`: nodes and devices not to use. `out`: absent nodes. `line`: the nodes of the previous attempt, in order. A
    node of the previous attempt keeps its place. A spare node takes the place of a lost node, so that the other nodes
    keep their ranks. Without a spare node the later nodes move up. If there are more nodes than before, only the first
    keeps its place, and with it rank 0; the others are sorted anew.
    """
    plan = spec.nodes
    most, least = (plan.most, plan.least) if plan.many else (len(nodes), 1)
    free = {node.name: node for node in fit(spec, nodes, avoid, out)}
    known = {node.name: node for node in nodes}
    kept = [free.pop(name, None) for name in line[:most]]
    placed = []
    for name, node in zip(line, kept, strict=False):
        if node is None and free:
            node = free.pop(_successor(known.get(name), free))
        if node is not None:
            placed.append(node)
    more = list(free.values())[: most - len(placed)]
    if more and placed and any(role.per_node for role in spec.roles):
        placed = [placed[0], *sorted([*placed[1:], *more], key=order)]
    else:
        placed += more
    return placed if len(placed) >= least else []


def _successor(gone: NodeInfo | None, free: dict[str, NodeInfo]) -> str:
    """Return the node in `free` that replaces the node `gone`: one with the same node rank, else one with as many
    slots. The other ranks then keep their places.
    """
    if gone is not None:
        typed = (name for name, node in free.items() if node.node_rank is not None and node.node_rank == gone.node_rank)
        alike = (name for name, node in free.items() if node.slots == gone.slots)
        found = next(typed, None) or next(alike, None)
        if found is not None:
            return found
    return next(iter(free))
