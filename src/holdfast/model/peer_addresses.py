"""The addresses by which the tasks of an attempt reach each other: hosts and reserved ports. Few jobs use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from holdfast.model.gang_protocol import Peers
from holdfast.model.job_spec import JobSpec, Placement
from holdfast.model.noun_base import Noun

#: The label of the port of a node's sshd; all tasks of the node share it.
SSH = "ssh"


class Task(Noun, frozen=True, kw_only=True):
    """The address of a task for its peers."""

    role: str
    #: The index of the task in its role, from 0.
    index: int
    #: The index of the task's node in `Peers.hosts`.
    node: int
    host: str
    #: Label → the task's ports.
    ports: dict[str, tuple[int, ...]]


def ports_needed(spec: JobSpec, placements: Sequence[Placement]) -> dict[str, int]:
    """Return how many ports each node must reserve for the attempt with this placement.

    Nodes that need none are left out.
    """
    each = {role.name: sum(role.ports.values()) for role in spec.roles}
    needed = Counter[str]()
    for placement in placements:
        needed[placement.node] += each.get(placement.role, 0)
    if _reserves_ssh(spec):
        for node in needed:
            needed[node] += 1
    return {node: count for node, count in needed.items() if count}


def gather(
    spec: JobSpec, placements: Sequence[Placement], addresses: Mapping[str, str], reserved: Mapping[str, Sequence[int]]
) -> Peers | None:
    """Return the addresses of the placed tasks, in the order of ranks; None if a node has reserved too few ports.

    `addresses`: node → its address; without an entry, a node has this machine's loopback address. `reserved`: node →
    its ports.
    """
    if any(len(reserved.get(node, ())) < count for node, count in ports_needed(spec, placements).items()):
        return None
    place = {node: number for number, node in enumerate(dict.fromkeys(placement.node for placement in placements))}
    runs: dict[str, list[int]] = {}
    for placement in placements:
        run, node = runs.setdefault(placement.role, []), place[placement.node]
        if run and run[-2] == node:
            run[-1] += 1
        else:
            run += [node, 1]
    own = [tuple(reserved.get(node, ())) for node in place]
    ssh: tuple[int, ...] = ()
    if spec.runtime.ssh is not None:
        ssh = tuple(ports[-1] for ports in own) if _reserves_ssh(spec) else (spec.runtime.ssh.port,) * len(place)
    return Peers(
        hosts=tuple(addresses.get(node) or "127.0.0.1" for node in place),
        tasks={role: tuple(run) for role, run in runs.items()},
        labels={role.name: dict(role.ports) for role in spec.roles if role.ports},
        ports=tuple(own) if any(own) else (),
        ssh=ssh,
    )


def tasks_of(peers: Peers) -> Iterator[Task]:
    """Yield every task in `peers`, role by role, in the order of ranks."""
    used = [0] * len(peers.hosts)
    for role, runs in peers.tasks.items():
        index, labels = 0, peers.labels.get(role, {})
        for node, count in zip(runs[::2], runs[1::2], strict=True):
            for _ in range(count):
                ports = {}
                for label, number in labels.items():
                    ports[label] = peers.ports[node][used[node] : used[node] + number]
                    used[node] += number
                if peers.ssh:
                    ports.setdefault(SSH, (peers.ssh[node],))
                yield Task(role=role, index=index, node=node, host=peers.hosts[node], ports=ports)
                index += 1


def _reserves_ssh(spec: JobSpec) -> bool:
    return spec.runtime.ssh is not None and spec.runtime.ssh.port == 0
