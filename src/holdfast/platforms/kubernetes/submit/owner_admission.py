"""Checks before a submission that the cluster will admit the owner's pod, that quotas suffice, and that its account has
the needed rights.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects.job_manifests import OwnerPodSpec, manifests, rules

#: Maps a key for workers' pods to the key of the `kubernetes:` section for the owner's pod. Messages about a refused
#: owner's pod name the latter.
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
    """Return the pod that the Job's controller will make, so that the server can validate it.

    The account that the submission creates does not exist yet, so the pod names the namespace's default account.
    """
    template = manifests(owner)[-1]["spec"]["template"]
    plan, spec = owner.plan, dict(template["spec"])
    if not owner.service_account:
        spec["serviceAccountName"] = "default"
    meta = {**template["metadata"], "name": f"{plan.name}-owner", "namespace": plan.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def amount(text: object) -> float | None:
    """Parse a quantity as Kubernetes writes it: `250m`, `8`, `1.5Gi`, `1e3`. Return None for any other text."""
    found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    if found is None or found[2] not in _SUFFIXES:
        return None
    try:
        return float(found[1]) * _SUFFIXES[found[2]]
    except ValueError:
        return None


def needs(pods: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, float]:
    """Add up the resources of these pods, under the names that quotas use. `pods`: pairs of a pod and its number."""
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
                # Init containers run one after another and before the others, so only the largest request counts.
                for name, value in _of(container, kind).items():
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
    """Return two clauses: why the pods exceed a quota even if it is unused, and why they exceed the rest that is left
    now.

    A clause is "" if the pods fit. Quotas with scopes, which count only some pods, are ignored.
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
    """Return the rights that the owner needs and its account lacks, such as `create pods`. Return None if the user may
    not query rights.
    """
    space, account = owner.plan.namespace, owner.service_account
    where = f"/apis/authorization.k8s.io/v1/namespaces/{space}/localsubjectaccessreviews"
    lacks: list[str] = []
    for rule in rules(owner.plan.name):
        [group], [resource], [name] = rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""])
        for verb in rule["verbs"]:
            if (verb, resource) == ("patch", "pods"):
                continue  # optional: without this right, the owner deletes pods at the end (see JobPods)
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
