"""Our taint on a node: set beside those of others, read, and taken away alone."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.platforms.kubernetes.objects.node_taints import KEY, WHY, free_patch, held, hold_patch, value_of

TAINTED_NODE: dict[str, Any] = {
    "metadata": {"name": "k2", "resourceVersion": "7"},
    "spec": {"taints": [{"key": "site/other", "value": "1", "effect": "NoExecute"}]},
}


def patched(node: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
    """A merge patch applied."""
    assert patch is not None
    meta = {**node["metadata"], **{key: item for key, item in patch["metadata"].items() if key != "annotations"}}
    meta["annotations"] = {key: item for key, item in patch["metadata"]["annotations"].items() if item is not None}
    return {"metadata": meta, "spec": {**node["spec"], "taints": patch["spec"]["taints"] or []}}


def test_a_node_is_held_and_freed_and_others_taints_stay() -> None:
    assert held(TAINTED_NODE) is None and free_patch(TAINTED_NODE) is None
    node = patched(TAINTED_NODE, hold_patch(TAINTED_NODE, "train", "npu0 is HELD: HBM"))
    found = held(node)
    assert found is not None and (found.node, found.job, found.reason) == ("k2", "train", "npu0 is HELD: HBM")
    assert hold_patch(node, "other", "again") is None, "the first reason stays"
    freed = patched(node, free_patch(node))
    assert held(freed) is None
    assert freed["spec"]["taints"] == TAINTED_NODE["spec"]["taints"] and WHY not in freed["metadata"]["annotations"]


def test_a_patch_has_the_version_that_was_read() -> None:
    patch = hold_patch(TAINTED_NODE, "train", "x")
    assert patch is not None and patch["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(("job", "value"), [("train", "train"), ("a b/c", "a-b-c"), ("x" * 80, "x" * 63), ("é", "job")])
def test_a_jobs_name_becomes_a_value_that_kubernetes_takes(job: str, value: str) -> None:
    assert value_of(job) == value
    assert KEY.count("/") == 1
