"""Mark a node that a person must check with a taint, and with an annotation that has the reason.

A taint's value is limited to 63 simple characters, so it has only the job's name. `kubectl describe node` prints the
annotation too. Taints of others are never changed. Each patch contains the whole list of taints and the resource
version at which the list was read. If the list has changed meanwhile, the server rejects the patch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.model.noun_base import Noun

KEY = "holdfast.io/held"
#: The taint's effect. Kubernetes places no new pod on the node. Running pods stay, and the gang decides about its own
#: pods.
EFFECT = "NoSchedule"
WHY = "holdfast.io/held-because"
#: Length limit of the reason in the annotation, in characters.
MOST_WHY = 1000


class HeldNode(Noun, frozen=True, kw_only=True):
    """A node that holdfast has tainted."""

    node: str
    #: Name of the job that tainted the node, from the taint's value.
    job: str
    reason: str = ""
    #: Time of the taint, in Kubernetes' format.
    since: str = ""


def value_of(job: str) -> str:
    """Convert a job's name to a taint's value."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", job)[:63].strip("._-") or "job"


def held(node: Mapping[str, Any]) -> HeldNode | None:
    """Return holdfast's taint on a node; None if the node has no such taint. `node`: the record from the API server."""
    meta = node.get("metadata") or {}
    for taint in _taints(node):
        if taint.get("key") == KEY:
            why = str((meta.get("annotations") or {}).get(WHY, ""))
            since = str(taint.get("timeAdded") or "")
            return HeldNode(node=str(meta.get("name", "")), job=str(taint.get("value", "")), reason=why, since=since)
    return None


def hold_patch(node: Mapping[str, Any], job: str, reason: str) -> dict[str, Any] | None:
    """Return the merge patch that taints a node. Return None if the node has the taint already."""
    if held(node) is not None:
        return None
    taint = {"key": KEY, "value": value_of(job), "effect": EFFECT}
    return _patch(node, [*_taints(node), taint], reason[:MOST_WHY])


def free_patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the merge patch that removes holdfast's taint. Return None if the node has no such taint."""
    if held(node) is None:
        return None
    return _patch(node, [taint for taint in _taints(node) if taint.get("key") != KEY], None)


def by_hand(node: str, job: str) -> str:
    """Return the kubectl command with which a user can set the taint."""
    return f"kubectl taint nodes {node} {KEY}={value_of(job)}:{EFFECT}"


def free_by_hand(node: str) -> str:
    return f"kubectl taint nodes {node} {KEY}-"


def rule() -> dict[str, Any]:
    """Return the RBAC rule that lets the owner's account taint nodes.

    Nodes have no namespace, so the rule belongs in a ClusterRole.
    """
    return {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}


def _patch(node: Mapping[str, Any], taints: list[dict[str, Any]], why: str | None) -> dict[str, Any]:
    version = str((node.get("metadata") or {}).get("resourceVersion", ""))
    return {
        "metadata": {**({"resourceVersion": version} if version else {}), "annotations": {WHY: why}},
        "spec": {"taints": taints or None},
    }


def _taints(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = (node.get("spec") or {}).get("taints") or []
    return [dict(taint) for taint in found if isinstance(taint, Mapping)]
