"""Build the objects of a job other than its agents' pods, as plain mappings for the API server.

All kinds used are stable (v1, batch/v1, rbac.authorization.k8s.io/v1) and exist since Kubernetes 1.20. Newer fields are
left out if the server does not support them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.agent_pod import (
    HOME_VOLUME,
    JOB_VOLUME,
    KEY_VOLUME,
    key_volume,
    of_the_pod,
    rather_apart,
    secrets_file,
    security,
)
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.objects.pod_template import merged

OWNER_CONTAINER = "owner"
_RBAC = "rbac.authorization.k8s.io"


class OwnerPodSpec(Noun, frozen=True, kw_only=True):
    """The settings for the owner's pod and its related objects."""

    plan: PodPlan
    #: The contents of the job file, as text.
    job_file: str
    #: The job's secret key: 64 hexadecimal digits.
    key: str
    #: The values of the job file's `secrets`, by name.
    secrets: dict[str, str] = {}
    #: Further command-line options for `holdfast run`.
    words: tuple[str, ...] = ()
    #: Name of an existing service account that has the owner's rights. If empty, an account is created for the job.
    service_account: str = ""
    #: How many of the owner's pods may be lost before the job fails.
    retries: int = 6
    #: Delay between the job's end and its deletion by Kubernetes, in seconds; None: Kubernetes keeps the job.
    keep_s: int | None = None
    cpus: str = "100m"
    memory: str = "256Mi"
    template: dict[str, Any] = {}
    #: Whether the server supports `podFailurePolicy`.
    pod_failure_policy: bool = True
    #: The objects that the gang scheduler needs.
    groups: tuple[dict[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"Owner({self.plan.name})"  # show no key and no secrets, because the text may get into logs


def manifests(owner: OwnerPodSpec) -> list[dict[str, Any]]:
    """Return all objects of the job in the order of their creation.

    The Job comes last, because its pod needs the others.
    """
    plan = owner.plan
    found = [_secret(owner), _job_config(owner), _state_config(plan), _service(plan)]
    if not owner.service_account:
        found = [_service_account(plan), _role(plan), _role_binding(plan), *found]
    return [*found, *owner.groups, _job(owner)]


def owned(manifest: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with an owner reference to the Job, so that Kubernetes deletes both together."""
    return merged(manifest, {"metadata": {"ownerReferences": [dict(reference)]}})


def _meta(plan: PodPlan, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": plan.namespace, "labels": object_names.labels(plan.name, object_names.OWNER)}


def _secret(owner: OwnerPodSpec) -> dict[str, Any]:
    plan = owner.plan
    secrets = {object_names.SECRETS: msgspec.json.encode(owner.secrets).decode()} if owner.secrets else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _meta(plan, object_names.key_secret(plan.name)),
        "type": "Opaque",
        "stringData": {object_names.KEY: owner.key, **secrets},
        "immutable": True,
    }


def _job_config(owner: OwnerPodSpec) -> dict[str, Any]:
    plan = owner.plan
    text = msgspec.json.format(msgspec.json.encode(plan), indent=1).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(plan, object_names.job_config(plan.name)),
        "data": {object_names.JOB_FILE: owner.job_file, object_names.PLAN_FILE: text + "\n"},
    }


def _state_config(plan: PodPlan) -> dict[str, Any]:
    """Return an empty ConfigMap for the job's state. Submission creates it, so the owner needs no right to create
    ConfigMaps.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(plan, object_names.state_config(plan.name)),
        "data": {},
    }


def _service(plan: PodPlan) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(plan, plan.name),
        "spec": {
            "clusterIP": "None",
            # Agents must reach the owner before it is ready, because it becomes ready only after they have connected.
            "publishNotReadyAddresses": True,
            "selector": object_names.labels(plan.name, object_names.OWNER),
            "ports": [{"name": "owner", "port": object_names.PORT, "targetPort": object_names.PORT, "protocol": "TCP"}],
        },
    }


def _service_account(plan: PodPlan) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _meta(plan, plan.name),
        "automountServiceAccountToken": False,
    }


def rules(name: str) -> list[dict[str, Any]]:
    """Return the rules of the owner's Role: access to agents' pods, its state, events, and its own Job."""
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "patch", "delete"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [object_names.state_config(name)],
            "verbs": ["get", "update", "patch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "list", "watch"]},
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "resourceNames": [name],
            "verbs": ["get", "list", "watch", "patch"],
        },
    ]


def _role(plan: PodPlan) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _meta(plan, plan.name),
        "rules": rules(plan.name),
    }


def _role_binding(plan: PodPlan) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _meta(plan, plan.name),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": plan.name},
        "subjects": [{"kind": "ServiceAccount", "name": plan.name, "namespace": plan.namespace}],
    }


def _job(owner: OwnerPodSpec) -> dict[str, Any]:
    plan = owner.plan
    spec: dict[str, Any] = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": owner.retries,
        "template": merged(
            {"metadata": {"labels": object_names.labels(plan.name, object_names.OWNER)}, "spec": _pod_spec(owner)},
            owner.template,
        ),
    }
    if owner.keep_s is not None:
        spec["ttlSecondsAfterFinished"] = owner.keep_s
    if owner.pod_failure_policy:
        spec["podFailurePolicy"] = failure_policy()
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _meta(plan, plan.name), "spec": spec}


def failure_policy() -> dict[str, Any]:
    """Return the Job's failure policy.

    An exit with a final verdict fails the Job at once. An eviction of the owner's pod does not count as a failure.
    After any other exit Kubernetes starts another pod. Servers up to 1.28 require the empty list.
    """
    ends = {
        "containerName": OWNER_CONTAINER,
        "operator": "In",
        "values": sorted((object_names.BAD_USAGE, object_names.DO_NOT_RETRY)),
    }
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": ends, "onPodConditions": []},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    }


def _pod_spec(owner: OwnerPodSpec) -> dict[str, Any]:
    """Return the spec of the owner's pod before the user's template is merged in."""
    plan = owner.plan
    said = {
        object_names.JOB_NAME: plan.name,
        object_names.IMAGE: plan.holdfast_image,
        object_names.KEY_FILE: f"{object_names.KEY_DIR}/{object_names.KEY}",
        "HOLDFAST_HOME": object_names.STATE,
        **secrets_file(plan),
    }
    container: dict[str, Any] = {
        "name": OWNER_CONTAINER,
        "image": plan.holdfast_image,
        **({"imagePullPolicy": plan.pull_policy} if plan.pull_policy else {}),
        "command": [
            "holdfast",
            "run",
            "--job",
            f"{object_names.CONFIG_DIR}/{object_names.JOB_FILE}",
            *over(plan),
            *owner.words,
        ],
        "env": [*of_the_pod(), *({"name": name, "value": value} for name, value in said.items())],
        "ports": [{"name": "owner", "containerPort": object_names.PORT, "protocol": "TCP"}],
        "volumeMounts": [
            {"name": JOB_VOLUME, "mountPath": object_names.CONFIG_DIR, "readOnly": True},
            {"name": KEY_VOLUME, "mountPath": object_names.KEY_DIR, "readOnly": True},
            {"name": HOME_VOLUME, "mountPath": object_names.HOME},
        ],
        "resources": {
            "requests": {"cpu": owner.cpus, "memory": owner.memory},
            "limits": {"cpu": _twenty(owner.cpus), "memory": _four(owner.memory)},
        },
        **security(plan),
        "terminationMessagePath": object_names.TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": owner.service_account or plan.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": round(plan.grace_s) + 60,
        "affinity": rather_apart(plan.name, object_names.AGENT),
        "containers": [container],
        "volumes": [
            {"name": JOB_VOLUME, "configMap": {"name": object_names.job_config(plan.name)}},
            key_volume(plan.name),
            {"name": HOME_VOLUME, "emptyDir": {}},
        ],
    }
    if plan.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.pull_secrets]
    if plan.priority_class:
        spec["priorityClassName"] = plan.priority_class
    return spec


def over(plan: PodPlan) -> list[str]:
    """Return the options of `holdfast run` for the number of nodes and spares."""
    nodes = str(plan.nodes) if plan.least in (0, plan.nodes) else f"{plan.least}:{plan.nodes}"
    return ["--nnodes", nodes, *(["--spares", str(plan.spares)] if plan.spares else [])]


def _twenty(cpus: str) -> str:
    """Return 20 times the CPU request as the CPU limit.

    An idle owner needs little CPU, but its start needs far more.
    """
    return f"{int(cpus[:-1]) * 20}m" if cpus.endswith("m") and cpus[:-1].isdigit() else cpus


def _four(memory: str) -> str:
    digits = memory.rstrip("KMGTkmgti")
    return f"{int(digits) * 4}{memory[len(digits) :]}" if digits.isdigit() else memory
