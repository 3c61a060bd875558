"""A node that a person has to look at: the job goes on elsewhere, and where it may, others are kept off it too."""

from __future__ import annotations

import json
from pathlib import Path

from pods_at_work import PYTHON, Job
from real_kubernetes import Object, Shared

from holdfast.platforms.kubernetes.objects import object_names

KEY = "holdfast.io/held"
#: HBM of an Ascend NPU: HOLD, where it comes for the third time.
FAULT = ("faults", "report", "--device", "npu0", "--code", "80E18005", "--once")


NPU = {"env": [{"name": "ASCEND_RT_VISIBLE_DEVICES", "value": "0"}]}


def taints(cluster: Shared, node: str) -> dict[str, Object]:
    return {taint["key"]: taint for taint in cluster.get("node", node)["spec"].get("taints", ())}


def held(job: Job) -> str:
    """Rank 1's device is held, and the job goes on elsewhere; the Kubernetes node that its pod was on."""
    pod = job.until_at(1)[1]
    node: str = job.agents()[pod]["spec"]["nodeName"]
    report = " ".join((PYTHON, "-m", "holdfast", *FAULT))
    job.inside(pod, "sh", "-c", f"{report} & {report} & {report} & wait", may_fail=True)

    def elsewhere() -> bool:
        pods = [each for each in job.agents().values() if "deletionTimestamp" not in each["metadata"]]
        where = {each["metadata"]["labels"][object_names.NODE]: each["spec"].get("nodeName") for each in pods}
        return where.get("1") not in (None, node)

    try:
        job.cluster.wait(elsewhere, "rank 1 is elsewhere", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{job.told()}") from None
    return node


def test_a_held_node_is_tainted_with_the_reason_and_freed_on_release(kubernetes: Shared, tmp_path: Path) -> None:
    cluster = kubernetes
    job = Job(cluster, tmp_path / "out", may_taint=True, task=NPU)
    cluster("kubectl", "create", "clusterrole", "taints", "--verb=get,patch", "--resource=nodes")
    bound = ("--clusterrole=taints", f"--serviceaccount={job.space}:train")
    cluster("kubectl", "create", "clusterrolebinding", "taints", *bound)
    for node in cluster.ordinary:
        cluster("kubectl", "taint", "node", node, "site/other=1:PreferNoSchedule", "--overwrite")
    job.submit()
    node = held(job)
    assert taints(cluster, node)[KEY]["value"] == "train" and taints(cluster, node)[KEY]["effect"] == "NoSchedule"
    assert "is HELD: 80E18005" in cluster("kubectl", "describe", "node", node)
    job.end()
    assert job.until_over().get("succeeded") == 1
    assert f"node {node} is tainted: " in job.said()

    listed = cluster.holdfast("devices", "--platform", "kubernetes", "--json")
    assert listed.wait() == 0
    assert [each["node"] for each in json.loads(listed.out)["nodes"]] == [node]
    freed = cluster.holdfast("release", node, "--platform", "kubernetes", "--reason", "HBM replaced")
    assert freed.wait() == 0 and "its taint is gone" in freed.out
    assert set(taints(cluster, node)) == {"site/other"}, "others' taints stay"
    again = cluster.holdfast("release", node, "--platform", "kubernetes", "--reason", "HBM replaced")
    assert again.wait() == 0 and "nothing to release" in again.out


def test_an_owner_that_may_not_taint_says_what_an_administrator_types_and_avoids_the_node(
    kubernetes: Shared, tmp_path: Path
) -> None:
    job = Job(kubernetes, tmp_path / "out", may_taint=True, task=NPU)
    job.submit()
    node = held(job)
    assert KEY not in taints(kubernetes, node)
    job.end()
    assert job.until_over().get("succeeded") == 1
    said = job.said()
    assert f"node {node} is not tainted: " in said and f"kubectl taint nodes {node} {KEY}=train:NoSchedule" in said
