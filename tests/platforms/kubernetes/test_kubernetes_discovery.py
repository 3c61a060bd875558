"""Who places all pods of a gang at once, found out from discovery documents as the servers' documentation has them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.job_spec import JobSpec, Role
from holdfast.platforms.kubernetes.objects.agent_pod import pod
from holdfast.platforms.kubernetes.objects.discovery import (
    ServerCapabilities,
    choose,
    resources_of,
    version_of,
    versions_of,
)
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodSizes, shapes

NATIVE, KUEUE = "scheduling.k8s.io", "kueue.x-k8s.io"
COSCHEDULING, VOLCANO = "scheduling.x-k8s.io", "scheduling.volcano.sh"
API_KINDS = {
    f"{NATIVE}/v1": ["priorityclasses"],
    f"{NATIVE}/v1alpha1": ["workloads"],
    f"{NATIVE}/v1alpha2": ["podgroups", "podgroups/status", "workloads"],
    f"{NATIVE}/v1beta1": ["podgroups", "podgroups/status", "workloads"],
    f"{KUEUE}/v1beta1": ["clusterqueues", "localqueues", "resourceflavors", "workloads"],
    f"{COSCHEDULING}/v1alpha1": ["elasticquotas", "podgroups"],
    f"{VOLCANO}/v1beta1": ["podgroups", "queues"],
}


def groups(*versions: str) -> dict[str, Any]:
    """What `/apis` answers."""
    names = dict.fromkeys(each.partition("/")[0] for each in versions)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": name,
                "versions": [
                    {"groupVersion": each, "version": each.partition("/")[2]}
                    for each in versions
                    if each.startswith(f"{name}/")
                ],
            }
            for name in ("apps", *names)
        ],
    }


def resources(version: str) -> dict[str, Any]:
    """What `/apis/GROUP/VERSION` answers."""
    listed = [{"name": each, "namespaced": True, "kind": "X", "verbs": ["create"]} for each in API_KINDS[version]]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def capabilities(*versions: str) -> ServerCapabilities:
    found = versions_of(groups(*versions))
    return ServerCapabilities(version=(1, 36), kinds={each: resources_of(resources(each)) for each in found})


def placement_for(*versions: str, **how: Any) -> Any:
    said = {"name": "train", "namespace": "ns", "pods": 4, **how}
    return choose(capabilities(*versions), **said)


def pod_placed(*versions: str, **how: Any) -> dict[str, Any]:
    """The first pod of a job that is placed so."""
    role = Role(name="w", count=4, command=("x",), image="i")
    together = placement_for(*versions, **how).together
    plan = PodPlan(
        name="train",
        namespace="ns",
        job="train",
        holdfast_image="h",
        shapes=shapes(JobSpec(name="x", roles=(role,)), PodSizes()),
        together=together,
    )
    return pod(plan, 0)


@pytest.mark.extras
@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_the_schedulers_own_pod_group_is_valid_where_it_is(version: str) -> None:
    import kubernetes_validate

    api = {"1.36": "v1alpha2", "1.37": "v1beta1"}[version]
    found = placement_for(f"{NATIVE}/v1", f"{NATIVE}/{api}")
    [group] = found.objects
    assert group["kind"] == "PodGroup" and group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    kubernetes_validate.validate(group, version, strict=True)
    made = pod_placed(f"{NATIVE}/{api}")
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "train"}
    kubernetes_validate.validate(made, version, strict=True)


@pytest.mark.extras
def test_its_forerunner_is_a_workload() -> None:
    import kubernetes_validate

    [group] = placement_for(f"{NATIVE}/v1", f"{NATIVE}/v1alpha1").objects
    assert group["kind"] == "Workload"
    kubernetes_validate.validate(group, "1.35", strict=True)
    made = pod_placed(f"{NATIVE}/v1alpha1")
    assert made["spec"]["workloadRef"]["name"] == "train"
    kubernetes_validate.validate(made, "1.35", strict=True)


def test_the_most_stable_version_is_taken() -> None:
    [group] = placement_for(f"{NATIVE}/v1", f"{NATIVE}/v1alpha2", f"{NATIVE}/v1beta1").objects
    assert group["apiVersion"] == f"{NATIVE}/v1beta1"


def test_a_group_that_has_only_priority_classes_places_nothing() -> None:
    found = placement_for(f"{NATIVE}/v1")
    assert found.objects == () and "waits for all of its 4 pods itself" in found.note


def test_a_queue_of_kueue_goes_before_the_scheduler() -> None:
    every = tuple(API_KINDS)
    assert placement_for(*every, queue="research").together.kind == "Kueue"
    assert placement_for(*every).together.kind == "PodGroup"
    made = pod_placed(*every, queue="research")["metadata"]
    assert made["labels"][f"{KUEUE}/queue-name"] == "research"
    assert made["labels"][f"{KUEUE}/pod-group-name"] == "train"
    assert made["annotations"][f"{KUEUE}/pod-group-total-count"] == "4"


def test_coscheduling_and_volcano_have_pod_groups_of_their_own() -> None:
    [group] = placement_for(f"{COSCHEDULING}/v1alpha1").objects
    assert group["apiVersion"] == f"{COSCHEDULING}/v1alpha1" and group["spec"]["minMember"] == 4
    assert pod_placed(f"{COSCHEDULING}/v1alpha1")["metadata"]["labels"][f"{COSCHEDULING}/pod-group"] == "train"
    found = placement_for(f"{VOLCANO}/v1beta1", queue="q")
    assert found.scheduler == "volcano" and found.objects[0]["spec"] == {"minMember": 4, "queue": "q"}
    assert pod_placed(f"{VOLCANO}/v1beta1")["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "train"


def test_one_pod_needs_no_gang_scheduler() -> None:
    assert placement_for(f"{NATIVE}/v1beta1", pods=1).objects == ()


def test_what_the_user_names_is_taken_or_refused() -> None:
    assert placement_for(*API_KINDS, asked="volcano").scheduler == "volcano"
    assert placement_for(*API_KINDS, asked="none").objects == ()
    with pytest.raises(ValueError, match="no Kueue, or no `queue`"):
        placement_for(*API_KINDS, asked="kueue")
    with pytest.raises(ValueError, match="neither PodGroup nor Workload"):
        placement_for(f"{NATIVE}/v1", asked="native")


@pytest.mark.parametrize("document", [None, [], {"groups": None}, {"groups": [None, {"versions": [None]}]}, "x"])
def test_documents_of_another_shape_say_nothing(document: Any) -> None:
    assert versions_of(document) == () and resources_of(document) == () and version_of(document) == (0, 0)


def test_versions_of_providers_have_a_plus() -> None:
    assert version_of({"major": "1", "minor": "20+"}) == (1, 20)
    assert (
        not ServerCapabilities(version=(1, 20)).pod_failure_policy
        and ServerCapabilities(version=(1, 31)).pod_failure_policy
    )
    assert ServerCapabilities().pod_failure_policy
