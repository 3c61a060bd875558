"""A node that a person has to look at, marked where people see it: a taint, and why in an annotation. Pure.

A taint's value has at most 63 letters of few kinds, so it names the job alone; the reason stands in an annotation,
which `kubectl describe node` prints too. Taints of others are never touched: each patch has the whole list as it was
read, and the version that it was read at, so that a list that has changed meanwhile is refused and read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.model.noun_base import Noun

KEY = "holdfast.io/held"
#: No new pod is placed there; pods that run there go on, and the gang decides about its own.
EFFECT = "NoSchedule"
WHY = "holdfast.io/held-because"
#: Characters of the reason that are kept.
MOST_WHY = 1000


class HeldNode(Noun, frozen=True, kw_only=True):
    """A node that holdfast has tainted."""

    node: str
    #: The job that found it, as the taint names it.
    job: str
    reason: str = ""
    #: As Kubernetes writes times.
    since: str = ""


def value_of(job: str) -> str:
    """A job's name as a taint's value."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", job)[:63].strip("._-") or "job"


def held(node: Mapping[str, Any]) -> HeldNode | None:
    """Whether a node has our taint. `node`: as the API server gives it."""
    meta = node.get("metadata") or {}
    for taint in _taints(node):
        if taint.get("key") == KEY:
            why = str((meta.get("annotations") or {}).get(WHY, ""))
            since = str(taint.get("timeAdded") or "")
            return HeldNode(node=str(meta.get("name", "")), job=str(taint.get("value", "")), reason=why, since=since)
    return None


def hold_patch(node: Mapping[str, Any], job: str, reason: str) -> dict[str, Any] | None:
    """The merge patch that taints a node; None where it has our taint already."""
    if held(node) is not None:
        return None
    taint = {"key": KEY, "value": value_of(job), "effect": EFFECT}
    return _patch(node, [*_taints(node), taint], reason[:MOST_WHY])


def free_patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
    """The merge patch that takes our taint away; None where there is none."""
    if held(node) is None:
        return None
    return _patch(node, [taint for taint in _taints(node) if taint.get("key") != KEY], None)


def by_hand(node: str, job: str) -> str:
    """What an administrator types to the same end."""
    return f"kubectl taint nodes {node} {KEY}={value_of(job)}:{EFFECT}"


def free_by_hand(node: str) -> str:
    return f"kubectl taint nodes {node} {KEY}-"


def rule() -> dict[str, Any]:
    """What the owner's account needs for it: nodes belong to no namespace, so it is a rule of a ClusterRole."""
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
