"""Judge before a submission what only the owner's own pod would meet: its admission, a quota, its account's rights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects.job_manifests import OwnerPodSpec, manifests, rules

#: What the keys of the `kubernetes:` section are called where the owner's pod, and not a worker's, is refused.
OWNERS_KEYS = {
    "cpus": "owner_cpus",
    "memory": "owner_memory",
    "template": "owner_template",
    "service_account": "owner_service_account",
}
_SUFFIXES = {"m": 1e-3, "": 1.0} | {
    unit: base ** (power + 1)
    for base, units in ((1e3, ("k", "M", "G", "T", "P", "E")), (1024.0, ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))
    for power, unit in enumerate(units)
}


def owner_pod(owner: OwnerPodSpec) -> dict[str, Any]:
    """Return the pod that the Job's controller will make, for the server's judgement.

    The account that a submission makes is not there yet, so the namespace's default account stands for it.
    """
    template = manifests(owner)[-1]["spec"]["template"]
    plan, spec = owner.plan, dict(template["spec"])
    if not owner.service_account:
        spec["serviceAccountName"] = "default"
    meta = {**template["metadata"], "name": f"{plan.name}-owner", "namespace": plan.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def amount(text: object) -> float | None:
    """Parse a quantity as Kubernetes writes it: `250m`, `8`, `1.5Gi`, `1e3`. Return None if it is none."""
    found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    if found is None or found[2] not in _SUFFIXES:
        return None
    try:
        return float(found[1]) * _SUFFIXES[found[2]]
    except ValueError:
        return None


def needs(pods: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, float]:
    """Return what these pods need together, by the names that quotas use. `pods`: pods, each with its number."""
    total: dict[str, float] = defaultdict(float)
    for pod, number in pods:
        spec = pod.get("spec") or {}
        one: dict[str, float] = {"pods": 1, "count/pods": 1}
        for kind in ("requests", "limits"):
            together: dict[str, float] = defaultdict(float)
            for container in spec.get("containers") or ():
                for name, value in _of(container, kind).items():
                    together[name] += value
            for container in spec.get("initContainers") or ():
                for name, value in _of(container, kind).items():  # init containers run one after the other, before
                    together[name] = max(together[name], value)
            one |= {f"{kind}.{name}": value for name, value in together.items()}
        one |= {name: one[f"requests.{name}"] for name in ("cpu", "memory") if f"requests.{name}" in one}
        for name, value in one.items():
            total[name] += value * number
    return total


def _of(container: Mapping[str, Any], kind: str) -> dict[str, float]:
    given = ((container.get("resources") or {}).get(kind) or {}).items()
    return {name: value for name, text in given if (value := amount(text)) is not None}


def shortage(quotas: Iterable[Mapping[str, Any]], needed: Mapping[str, float]) -> tuple[str, str]:
    """Return why the pods can never be within the quotas, and why they are not now. Both are clauses, or empty.

    Quotas of some pods only (scopes) are left out.
    """
    never = now = ""
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        name = (quota.get("metadata") or {}).get("name")
        for key, text in (status.get("hard") or spec.get("hard") or {}).items():
            hard, used = amount(text), amount((status.get("used") or {}).get(key, "0")) or 0.0
            if hard is None or key not in needed:
                continue
            words = f"all pods of the job and its owner's need {key}={needed[key]:.12g} together, and quota {name}"
            if needed[key] > hard:
                never = never or f"{words} allows {hard:.12g}"
            elif needed[key] > hard - used:
                now = now or f"{words} has {max(hard - used, 0):.12g} of {hard:.12g} left now"
    return never, now


def missing_rights(api: BlockingClient, owner: OwnerPodSpec) -> list[str] | None:
    """Return which of the owner's rights its account lacks: `create pods`. None: who submits may not ask that."""
    space, account = owner.plan.namespace, owner.service_account
    where = f"/apis/authorization.k8s.io/v1/namespaces/{space}/localsubjectaccessreviews"
    lacks: list[str] = []
    for rule in rules(owner.plan.name):
        [group], [resource], [name] = rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""])
        for verb in rule["verbs"]:
            if (verb, resource) == ("patch", "pods"):
                continue  # without it pods are deleted at the end, see JobPods
            wants = {"namespace": space, "verb": verb, "group": group, "resource": resource, "name": name}
            spec = {
                "user": f"system:serviceaccount:{space}:{account}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"],
                "resourceAttributes": {key: value for key, value in wants.items() if value},
            }
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview"}
            answer = api.create(where, {**review, "metadata": {"namespace": space}, "spec": spec})
            if not answer.ok:
                return None
            if not (answer.body.get("status") or {}).get("allowed"):
                lacks.append(f"{verb} {resource}")
    return lacks
