"""What holdfast asks of Kubernetes: every object is valid by the schemas of many versions, and says what it has to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model.job_spec import JobSpec, Resources, Role
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.agent_pod import OwnersJob, pod
from holdfast.platforms.kubernetes.objects.job_manifests import OwnerPodSpec, failure_policy, manifests, owned, rules
from holdfast.platforms.kubernetes.objects.pod_plan import GangPlacement, PodPlan, PodSizes, shapes
from holdfast.platforms.kubernetes.objects.pod_template import merged, template_refusal

KUBERNETES_VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
OWNERS_JOB = OwnersJob(name="train", uid="3f0c")
TEMPLATE = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"a/b": "c"}},
    "spec": {
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [
            {
                "name": "task",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "env": [{"name": "A", "value": "b"}],
                "securityContext": {"runAsUser": 1000},
            },
            {"name": "beside", "image": "fluent/fluent-bit:3"},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
                    ]
                }
            }
        },
    },
}


def role_job(count: int = 4, *, image: str = "busybox:1.36", **resources: Any) -> JobSpec:
    role = Role(name="worker", count=count, command=("train",), image=image, resources=Resources(**resources))
    return JobSpec(name="Train", roles=(role,))


def pod_plan(**given: Any) -> PodPlan:
    spec = given.pop("spec", None) or role_job()
    asked = given.pop("asked", None) or PodSizes()
    said = {"name": "train", "namespace": "ns", "job": "Train", "holdfast_image": "holdfast:0.2.0", **given}
    return PodPlan(shapes=shapes(spec, asked), **said)


def every_plan() -> Iterator[PodPlan]:
    yield pod_plan()
    yield pod_plan(spec=role_job(16, devices=1, cpus=1.5, memory_bytes=1 << 30), asked=PodSizes(nodes=2))
    yield pod_plan(asked=PodSizes(template=TEMPLATE, gpus=2, cpus="8", memory="64Gi"), spares=1, shm="1Gi")
    yield pod_plan(
        service_account="reader",
        priority_class="high",
        scheduler="volcano",
        node_selector={"pool": "a100"},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        pull_policy="IfNotPresent",
        pull_secrets=("registry",),
        together=GangPlacement(kind="kueue", labels={"kueue.x-k8s.io/queue-name": "q"}, annotations={"n": "4"}),
    )


def every_object() -> Iterator[dict[str, Any]]:
    for each in every_plan():
        owner = OwnerPodSpec(plan=each, job_file="name: x\n", key="ab" * 32)
        for one in (owner, replace(owner, service_account="made-by-admin", keep_s=3600, retries=0, cpus="2")):
            made = manifests(one)
            yield from made
            yield from (owned(found, OWNERS_JOB.reference) for found in made)
        for index in range(each.nodes + each.spares):
            yield pod(each, index)
            yield pod(each, index, 3, job=OWNERS_JOB, avoid=["k1", "k2.example.org"])


@pytest.fixture(scope="module")
def different() -> list[dict[str, Any]]:
    """Equal objects are validated once."""
    seen = {json.dumps(found, sort_keys=True): found for found in every_object()}
    assert len(seen) > 40
    return list(seen.values())


@pytest.mark.extras
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_is_valid_by_the_strict_schema(
    different: list[dict[str, Any]], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kubernetes_validate
    from kubernetes_validate import utils as schemas

    # The package would read its files anew for each object.
    monkeypatch.setattr(schemas, "schema_contents", cache(schemas.schema_contents))
    for found in different:
        kubernetes_validate.validate(found, version, strict=True)


def test_only_stable_kinds_are_made() -> None:
    assert {each["apiVersion"] for each in every_object()} == {"v1", "batch/v1", "rbac.authorization.k8s.io/v1"}


def test_a_field_that_the_server_lacks_is_left_out() -> None:
    made = manifests(OwnerPodSpec(plan=pod_plan(), job_file="", key="", pod_failure_policy=False))
    assert "podFailurePolicy" not in made[-1]["spec"]


def test_the_policy_has_one_code_for_a_verdict_and_never_counts_a_disruption() -> None:
    ends, ignored = failure_policy()["rules"]
    assert ends["action"] == "FailJob" and ends["onExitCodes"]["values"] == [2, 78]
    assert ignored["action"] == "Ignore" and ignored["onPodConditions"][0]["type"] == "DisruptionTarget"


def test_the_owner_may_touch_only_its_own_things() -> None:
    """No secrets, no nodes, no other job's state, no rights to give rights."""
    found = {
        (group, kind): each for each in rules("train") for group in each["apiGroups"] for kind in each["resources"]
    }
    assert set(found) == {("", "pods"), ("", "configmaps"), ("", "events"), ("batch", "jobs")}
    assert found["", "configmaps"]["resourceNames"] == ["train-state"]
    assert found["batch", "jobs"]["resourceNames"] == ["train"]
    assert not any("*" in each["verbs"] for each in found.values())


def test_all_objects_have_the_labels_of_the_job() -> None:
    for each in [*manifests(OwnerPodSpec(plan=pod_plan(), job_file="", key="")), pod(pod_plan(), 0)]:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "holdfast" and labels["holdfast.io/job"] == "train"


def test_the_service_selects_the_owners_pod_and_no_agent() -> None:
    made = {each["kind"]: each for each in manifests(OwnerPodSpec(plan=pod_plan(), job_file="", key=""))}
    selector = made["Service"]["spec"]["selector"]
    owner = made["Job"]["spec"]["template"]["metadata"]["labels"]
    agent = pod(pod_plan(), 0)["metadata"]["labels"]
    assert selector.items() <= owner.items() and not selector.items() <= agent.items()


def test_a_pod_belongs_to_the_job_without_being_counted_by_it() -> None:
    [reference] = pod(pod_plan(), 0, job=OWNERS_JOB)["metadata"]["ownerReferences"]
    assert reference["uid"] == "3f0c" and "controller" not in reference


def test_a_lost_pod_has_a_successor_of_another_name_and_the_same_place() -> None:
    first, third = pod(pod_plan(), 2), pod(pod_plan(), 2, 2)
    assert first["metadata"]["name"] == "train-2" and third["metadata"]["name"] == "train-2-2"
    assert first["metadata"]["labels"]["holdfast.io/node"] == third["metadata"]["labels"]["holdfast.io/node"] == "2"


def test_an_avoided_node_is_kept_out_of_every_alternative_of_the_template() -> None:
    before = json.dumps(TEMPLATE)
    found = pod(pod_plan(asked=PodSizes(template=TEMPLATE)), 0, avoid=["k1"])
    node = found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["k1"]}]
    assert [term["matchFields"] for term in node["nodeSelectorTerms"]] == [fields, fields]
    assert json.dumps(TEMPLATE) == before


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_every_container_passes_the_level_of_pod_security(level: str) -> None:
    """The fields that the level `restricted` asks for, as Kubernetes' documentation lists them."""
    plan = replace(pod_plan(asked=PodSizes()), pod_security=level)
    of_owner = manifests(OwnerPodSpec(plan=plan, job_file="", key="k"))[-1]["spec"]["template"]["spec"]
    of_agent = pod(plan, 0)["spec"]
    for spec in (of_owner, of_agent):
        assert all({"configMap", "secret", "emptyDir"} & set(volume) for volume in spec["volumes"])
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            said = container.get("securityContext", {})
            if level == "baseline":
                assert "runAsNonRoot" not in said and bool(said) == (container["name"] != "task")
                continue
            assert said["runAsNonRoot"] is True and said["allowPrivilegeEscalation"] is False
            assert said["capabilities"] == {"drop": ["ALL"]} and said["seccompProfile"]["type"] == "RuntimeDefault"


def test_a_template_keeps_what_holdfast_mounts_and_adds_its_own() -> None:
    spec = pod(pod_plan(asked=PodSizes(template=TEMPLATE)), 0)["spec"]
    task, beside = spec["containers"]
    assert task["command"] == ["/usr/local/pai/run"] and task["securityContext"]["runAsUser"] == 1000
    assert {mount["mountPath"] for mount in task["volumeMounts"]} >= {"/usr/local/pai", "/data", "/dev/shm"}
    assert {each["name"] for each in task["env"]} >= {"HOLDFAST_OWNER", "A"}
    assert beside["name"] == "beside" and spec["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"spec": {"nodeName": "k1"}}, "spec.nodeName"),
        ({"spec": {"containers": [{"name": "task", "command": ["sh"]}]}}, "spec.containers[task].command"),
        ({"spec": {"initContainers": [{"name": "prepare", "args": []}]}}, "spec.initContainers[prepare].args"),
        (
            {
                "spec": {
                    "containers": [{"name": "task", "volumeMounts": [{"name": "x", "mountPath": "/usr/local/pai/"}]}]
                }
            },
            "spec.containers[task].volumeMounts[/usr/local/pai]",
        ),
        (
            {"spec": {"containers": [{"name": "task", "env": [{"name": "HOLDFAST_OWNER", "value": "x"}]}]}},
            "spec.containers[task].env[HOLDFAST_OWNER]",
        ),
        ({"metadata": {"labels": {"holdfast.io/job": "other"}}}, "metadata.labels.holdfast.io/job"),
        ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences"),
        ({"spec": {"volumes": [{"name": "holdfast-key", "emptyDir": {}}]}}, "spec.volumes[holdfast-key]"),
        ({"containers": []}, "containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers"),
        ("x", "metadata"),
    ],
)
def test_what_a_gang_depends_on_cannot_be_overridden(template: Any, place: str) -> None:
    assert place in template_refusal(template)


def test_a_template_that_only_adds_is_taken() -> None:
    assert template_refusal(TEMPLATE) == ""


def test_null_takes_a_field_away() -> None:
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}


# -------------------------------------------------------------------------------------------------- roles to pods


def test_a_worker_has_a_pod_of_its_own_unless_more_is_said() -> None:
    [shape] = shapes(role_job(4), PodSizes())
    assert (shape.pods, shape.workers) == (4, 1)


def test_workers_are_spread_evenly_over_the_pods_that_were_asked_for() -> None:
    found = shapes(role_job(5), PodSizes(nodes=2))
    assert [(each.pods, each.workers) for each in found] == [(1, 3), (1, 2)]


def test_the_gpus_of_a_pod_say_how_many_workers_it_has() -> None:
    [one] = shapes(role_job(16), PodSizes(gpus=8))
    [two] = shapes(role_job(16, devices=2), PodSizes(gpus=8))
    assert (one.pods, one.workers, one.resources) == (2, 8, {"nvidia.com/gpu": "8"})
    assert (two.pods, two.workers) == (4, 4)


def test_what_workers_need_is_what_their_pod_has() -> None:
    [shape] = shapes(role_job(4, devices=1, cpus=1.5, memory_bytes=1 << 30), PodSizes(nodes=2))
    assert shape.resources == {"cpu": "3", "memory": "2304Mi", "nvidia.com/gpu": "2"}


def test_roles_have_pods_of_their_own_in_the_order_of_their_ranks() -> None:
    spec = JobSpec(
        name="x",
        roles=(
            Role(name="ps", count=1, command=("a",), image="one"),
            Role(name="worker", count=4, command=("b",), image="two"),
        ),
    )
    found = pod_plan(spec=spec, asked=PodSizes(per_pod=2))
    assert [(each.roles, each.pods, each.image) for each in found.shapes] == [
        (("ps",), 1, "one"),
        (("worker",), 2, "two"),
    ]
    images = [pod(found, index)["spec"]["containers"][0]["image"] for index in range(3)]
    assert images == ["one", "two", "two"]
    with pytest.raises(ValueError, match="images of their own"):
        shapes(spec, PodSizes(nodes=2))


@pytest.mark.parametrize(
    ("spec", "asked", "said"),
    [
        (role_job(2), PodSizes(nodes=3), "2 workers cannot use 3 pods"),
        (role_job(5), PodSizes(nodes=4), "fill 3 pods"),
        (role_job(1, image=""), PodSizes(), "no image"),
        (role_job(4, devices=4), PodSizes(nodes=2, gpus=4), "need 8 devices"),
    ],
)
def test_what_cannot_be_is_refused_in_words(spec: JobSpec, asked: PodSizes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shapes(spec, asked)


@pytest.mark.parametrize(
    ("name", "object_name"),
    [("train", "train"), ("My_Job.v2", "my-job-v2"), ("7b", "j-7b"), ("_", "j"), ("a" * 48, "a" * 48)],
)
def test_a_jobs_name_becomes_a_name_of_dns(name: str, object_name: str) -> None:
    assert object_names.object_name(name) == object_name


def test_long_names_are_cut_and_kept_apart() -> None:
    one, two = object_names.object_name("a" * 62 + "b"), object_names.object_name("a" * 62 + "c")
    assert one != two and len(one) == len(two) == object_names.MOST_NAME
    assert len(object_names.pod_name(one, 99_999, 999)) <= 63
