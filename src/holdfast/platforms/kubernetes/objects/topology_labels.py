"""Read a node's topology from its labels, the widest level first. Ranks are ordered by it."""

from __future__ import annotations

from collections.abc import Mapping

#: Labels for each level; the first one that a node has counts.
_LEVELS = (
    ("topology.kubernetes.io/region",),
    ("topology.kubernetes.io/zone",),
    ("cloud.google.com/gce-topology-block", "topology.k8s.aws/network-node-layer-1"),
    (
        "network.topology.nvidia.com/spine",
        "cloud.google.com/gce-topology-subblock",
        "topology.k8s.aws/network-node-layer-2",
    ),
    ("topology.kubernetes.io/rack", "network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3"),
    ("network.topology.nvidia.com/accelerator", "nvidia.com/gpu.clique"),
)


def neighbourhood(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return one value for each level, empty if no label has it. () if no label has any level."""
    found = tuple(next((labels[key] for key in keys if labels.get(key)), "") for keys in _LEVELS)
    return found if any(found) else ()
