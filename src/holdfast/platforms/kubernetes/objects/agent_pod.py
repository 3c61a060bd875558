"""Build the pod of an agent, as a plain mapping for the API server. The same plan and index give the same pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_plan import RESTRICTED, PodPlan, PodShape, resources_of
from holdfast.platforms.kubernetes.objects.pod_template import merged

#: Time for an agent to exit after the end of its workers' grace period, in seconds.
END_S = 30

EXCHANGE_VOLUME = "holdfast-exchange"
KEY_VOLUME = "holdfast-key"
JOB_VOLUME = "holdfast-job"
HOME_VOLUME = "holdfast-home"
SHM_VOLUME = "holdfast-shm"

#: Security settings for containers that run holdfast's image, since holdfast needs no privileges.
_HARMLESS: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def security(plan: PodPlan, *, of_user: bool = False) -> dict[str, Any]:
    """Return a container's security settings, as an entry of the container.

    With `restricted` every container passes that level of Pod Security. `of_user`: true for a container with the user's
    image, which has no settings without `restricted`.
    """
    if plan.pod_security == RESTRICTED:
        return {"securityContext": {**_HARMLESS, "runAsNonRoot": True}}
    return {} if of_user else {"securityContext": dict(_HARMLESS)}


def rather_apart(name: str, part: str) -> dict[str, Any]:
    """Return an affinity that prefers nodes without a pod of this part of the job.

    The loss of one node then seldom ends both the owner and an agent.
    """
    term = {"labelSelector": {"matchLabels": object_names.labels(name, part)}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    }


class OwnersJob(Noun, frozen=True, kw_only=True):
    """The Job that runs the owner's pod. All other objects of the job belong to this Job."""

    name: str
    uid: str

    @property
    def reference(self) -> dict[str, Any]:
        """The owner reference for the job's other objects.

        The reference does not set `controller`, because the Job's controller would then count agents' pods as its own.
        It does not set `blockOwnerDeletion`, because that needs a right on the Job that a namespaced role may lack.
        """
        return {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.uid}


def pod(
    plan: PodPlan, index: int, generation: int = 0, *, job: OwnersJob | None = None, avoid: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the pod of node `index`.

    `generation`: how many pods the node has had before.
    `avoid`: names of Kubernetes nodes on which the pod must not run.
    `job`: the owner's Job; None for a dry run, or for validation by the API server.
    Raises IndexError.
    """
    shape = plan.shape(index)
    metadata: dict[str, Any] = {
        "name": object_names.pod_name(plan.name, index, generation),
        "namespace": plan.namespace,
        "labels": {
            **object_names.labels(plan.name, object_names.AGENT),
            object_names.NODE: str(index),
            object_names.GENERATION: str(generation),
            **plan.together.labels,
        },
        # Keep the cluster autoscaler from draining the pod's node to save machines.
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", **plan.together.annotations},
    }
    if job is not None:
        metadata["ownerReferences"] = [job.reference]
    found = merged(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(plan, shape, index)}, shape.template
    )
    if avoid:
        found["spec"]["affinity"] = _elsewhere(found["spec"].get("affinity") or {}, avoid)
    return found


def _spec(plan: PodPlan, shape: PodShape, index: int) -> dict[str, Any]:
    """Return the pod's spec before the user's template is merged in."""
    pull = {"imagePullPolicy": plan.pull_policy} if plan.pull_policy else {}
    env = _environment(plan, shape, index)
    exchange = {"name": EXCHANGE_VOLUME, "mountPath": plan.exchange}
    key = {"name": KEY_VOLUME, "mountPath": object_names.KEY_DIR, "readOnly": True}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": bool(plan.service_account),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": round(plan.grace_s) + END_S,
        "affinity": rather_apart(plan.name, object_names.OWNER),
        "initContainers": [
            {
                "name": object_names.PREPARE,
                "image": plan.holdfast_image,
                **pull,
                "command": [
                    "holdfast",
                    "prepare",
                    "--into",
                    plan.exchange,
                    "--job",
                    f"{object_names.CONFIG_DIR}/{object_names.JOB_FILE}",
                    "--result",
                    object_names.TERMINATION_LOG,
                ],
                "env": env,
                "volumeMounts": [
                    exchange,
                    {"name": JOB_VOLUME, "mountPath": object_names.CONFIG_DIR, "readOnly": True},
                    {"name": HOME_VOLUME, "mountPath": object_names.HOME},
                    *([key] if plan.secrets else []),
                ],
                **security(plan),
                "terminationMessagePath": object_names.TERMINATION_LOG,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                **_resources(resources_of(shape)),
            }
        ],
        "containers": [
            {
                "name": object_names.TASK,
                "image": shape.image,
                **pull,
                "command": [f"{plan.exchange}/run"],
                **security(plan, of_user=True),
                "env": env,
                "volumeMounts": [
                    exchange,
                    key,
                    {"name": HOME_VOLUME, "mountPath": object_names.HOME},
                    {"name": SHM_VOLUME, "mountPath": "/dev/shm"},
                ],
                "terminationMessagePath": object_names.TERMINATION_LOG,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                **_resources(shape.resources),
            }
        ],
        "volumes": [
            {"name": EXCHANGE_VOLUME, "emptyDir": {}},
            {"name": HOME_VOLUME, "emptyDir": {}},
            {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", **({"sizeLimit": plan.shm} if plan.shm else {})}},
            key_volume(plan.name),
            {"name": JOB_VOLUME, "configMap": {"name": object_names.job_config(plan.name)}},
        ],
    }
    if plan.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.pull_secrets]
    if plan.service_account:
        spec["serviceAccountName"] = plan.service_account
    if plan.priority_class:
        spec["priorityClassName"] = plan.priority_class
    if plan.scheduler:
        spec["schedulerName"] = plan.scheduler
    if plan.node_selector:
        spec["nodeSelector"] = dict(plan.node_selector)
    if plan.tolerations:
        spec["tolerations"] = [dict(each) for each in plan.tolerations]
    return merged(spec, plan.together.spec)


def key_volume(name: str) -> dict[str, Any]:
    """Return the volume with the job's key. Any user in this pod can read the file.

    With mode 0400 only root could read it. Access through a group (fsGroup) would also change the user's volumes.
    """
    return {"name": KEY_VOLUME, "secret": {"secretName": object_names.key_secret(name), "defaultMode": 0o444}}


def secrets_file(plan: PodPlan) -> dict[str, str]:
    """Return the variable with the path of the job file's `secrets`; empty if the job has no secrets."""
    return {object_names.SECRETS_FILE: f"{object_names.KEY_DIR}/{object_names.SECRETS}"} if plan.secrets else {}


def of_the_pod() -> list[dict[str, Any]]:
    """Return variables that Kubernetes fills with the pod's name, uid, namespace and node."""
    fields = {
        object_names.POD: "metadata.name",
        object_names.POD_UID: "metadata.uid",
        object_names.NAMESPACE: "metadata.namespace",
        object_names.KUBERNETES_NODE: "spec.nodeName",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def _environment(plan: PodPlan, shape: PodShape, index: int) -> list[dict[str, Any]]:
    said = {
        object_names.JOB_NAME: plan.name,
        object_names.OWNER_ADDRESS: object_names.owner_address(plan.name, plan.namespace),
        object_names.KEY_FILE: f"{object_names.KEY_DIR}/{object_names.KEY}",
        object_names.NODE_INDEX: str(index),
        object_names.SLOTS: str(shape.workers),
        "HOLDFAST_HOME": object_names.STATE,
        **secrets_file(plan),
    }
    return [*of_the_pod(), *({"name": name, "value": value} for name, value in said.items())]


def _resources(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the resources of a container.

    The requests are equal to the limits, so that the node reserves all resources that workers may use.
    """
    return {"resources": {"requests": dict(asked), "limits": dict(asked)}} if asked else {}


def _elsewhere(affinity: Mapping[str, Any], avoid: Sequence[str]) -> dict[str, Any]:
    """Return the affinity with the nodes `avoid` excluded.

    The affinity's terms are alternatives, so each term gets the exclusion. Nodes are matched by their Kubernetes name,
    because the label with the host name may differ from it.
    """
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in dict.fromkeys(avoid)]
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or []), *fields]} for term in terms
    ]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": node}


def rather_elsewhere(spec: dict[str, Any], nodes: Sequence[str]) -> None:
    """Make the pod's spec prefer other nodes than `nodes`.

    `nodes`: the node whose pod has just stopped answering. Kubernetes may still call that node ready.
    """
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    term = {"weight": 100, "preference": {"matchFields": fields}}
    node["preferredDuringSchedulingIgnoredDuringExecution"] = [
        *(node.get("preferredDuringSchedulingIgnoredDuringExecution") or []),
        term,
    ]
    spec["affinity"] = {**affinity, "nodeAffinity": node}
