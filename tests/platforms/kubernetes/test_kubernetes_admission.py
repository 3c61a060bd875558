"""What only the owner's pod would meet is judged at `submit`: quantities, quotas, limits, rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kube_api import ApiReply, Asked, api, status

from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble
from holdfast.platforms.kubernetes.objects.job_manifests import OwnerPodSpec
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodShape
from holdfast.platforms.kubernetes.submit.create_refusals import create_refusal
from holdfast.platforms.kubernetes.submit.owner_admission import amount, missing_rights, needs, owner_pod, shortage

OWNER = OwnerPodSpec(
    plan=PodPlan(
        name="train",
        namespace="ns",
        job="train",
        shapes=(PodShape(roles=("worker",), pods=2, workers=1, image="i"),),
        holdfast_image="h",
    ),
    job_file="",
    key="k",
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("250m", 0.25), ("8", 8), ("1.5Gi", 1.5 * 2**30), ("64k", 64e3), ("2Ti", 2 * 2**40), ("1e3", 1000), (4, 4),
        ("", None), ("x", None), ("1.2.3", None), ("5Xi", None),
    ],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: object, number: float | None) -> None:
    assert amount(text) == number


def _container(**resources: str) -> dict[str, Any]:
    return {"resources": {"requests": resources, "limits": resources}}


def _quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "small"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used}}


def test_the_needs_of_owner_and_pods_are_added_up_against_each_quota() -> None:
    agent = {
        "spec": {"containers": [_container(cpu="100m"), _container(cpu="50m")], "initContainers": [_container(cpu="1")]}
    }
    owner = {"spec": {"containers": [_container(cpu="100m", memory="1Gi")]}}
    needed = needs([(owner, 1), (agent, 2)])
    assert (needed["requests.cpu"], needed["cpu"], needed["pods"]) == (2.1, 2.1, 3)
    assert needed["limits.memory"] == 2**30
    never, now = shortage([_quota({"requests.cpu": "2"}, {})], needed)
    assert "requests.cpu=2.1" in never and "quota small allows 2" in never and not now
    never, now = shortage([_quota({"requests.cpu": "3", "pods": "9"}, {"requests.cpu": "1500m"})], needed)
    assert not never and "has 1.5 of 3 left now" in now
    assert shortage([_quota({"requests.cpu": "3"}, {"requests.cpu": "100m"})], needed) == ("", "")
    assert shortage([_quota({"pods": "1"}, {}, scopes=["BestEffort"])], needed) == ("", "")
    assert shortage([_quota({"requests.nvidia.com/gpu": "0", "configmaps": "1"}, {})], needed) == ("", "")


def test_the_owners_pod_is_the_one_that_the_job_makes() -> None:
    made = owner_pod(OWNER)
    assert made["metadata"]["name"] == "train-owner" and made["metadata"]["labels"]["holdfast.io/part"] == "owner"
    assert made["spec"]["serviceAccountName"] == "default", "the job's account is not there yet"
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2000m", "memory": "1024Mi"}


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("maximum memory usage per Container is 500Mi, but limit is 1Gi", "memory"),
        ("minimum cpu usage per Pod is 500m, but request is 100m", "cpus"),
        ("cpu max limit to request ratio per Container is 4, but provided ratio is 20.000000", "cpus"),
    ],
)
def test_a_limit_range_is_named_with_the_key_to_change(words: str, key: str) -> None:
    answer = Answered(number=1, status=403, trouble=ApiTrouble.REFUSED, said=f'pods "x" is forbidden: {words}')
    found = create_refusal(answer, kind="Pod", namespace="ns")
    assert found.key == key and "LimitRange" in found.said and found.hint == "kubectl describe limitrange -n ns"


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize("may_ask", [True, False])
def test_an_account_for_owners_is_asked_for_each_of_their_rights(may_ask: bool, tmp_path: Path) -> None:
    def answer(ask: Asked) -> ApiReply | None:
        if not may_ask:
            return status(403, "Forbidden", "no reviews")
        wants = ask.body["spec"]["resourceAttributes"]
        assert ask.body["spec"]["user"] == "system:serviceaccount:ns:owners"
        return 201, {"status": {"allowed": (wants["verb"], wants["resource"]) != ("create", "pods")}}

    owner = OwnerPodSpec(plan=OWNER.plan, job_file="", key="k", service_account="owners")
    with api(answer, tmp_path) as environment, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", environment["KUBECONFIG"])
        with BlockingClient.here() as client:
            assert missing_rights(client, owner) == (["create pods"] if may_ask else None)
