"""What a node's labels say of its neighbourhood, the widest first: ranks go by it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: Labels of the same width: the first that a node has counts.
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
    """A place for each level, empty where no label tells it; empty where none tells anything."""
    found = tuple(next((labels[key] for key in keys if labels.get(key)), "") for keys in _LEVELS)
    return found if any(found) else ()
