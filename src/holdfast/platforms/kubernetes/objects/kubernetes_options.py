"""Validate the user's Kubernetes settings from options, a job file's `kubernetes:` section and settings files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects.object_names import EXCHANGE
from holdfast.platforms.kubernetes.objects.option_checks import GANGS, JUDGES, BadOption, positive
from holdfast.platforms.kubernetes.objects.pod_plan import PodSizes
from holdfast.platforms.kubernetes.objects.pod_template import template_refusal


class KubernetesValue(Noun, frozen=True, kw_only=True):
    """One value with its origin for messages: "--namespace", "job file train.yaml: `kubernetes.namespace`"."""

    value: Any
    origin: str
    hint: str = ""


class KubernetesKey(Noun, frozen=True, kw_only=True):
    """One key of the `kubernetes:` section."""

    key: str
    #: Description of the key for the documentation.
    what: str
    expected: str
    #: Name of the function in `JUDGES` that validates and converts the value.
    judge: str
    also: tuple[str, ...] = ()


#: All keys of the `kubernetes:` section, in the order in which the documentation lists them.
# fmt: off
OWN: tuple[KubernetesKey, ...] = (
    KubernetesKey(key="namespace", what="the namespace; unless given the one of the kubeconfig's context, or of the pod", expected="a name of small letters, digits and `-`, at most 63", judge="label", also=("ns",)),
    KubernetesKey(key="nodes", what="how many pods take part, `N` or `MIN:MAX`; the workers of all roles are spread evenly over them", expected="a number of pods, or MIN:MAX", judge="nodes", also=("nnodes", "pods")),
    KubernetesKey(key="spares", what="further pods, kept ready", expected="a number, 0 or more", judge="count"),
    KubernetesKey(key="per_pod", what="how many workers of a role share a pod, where `nodes` is not said: 1, or as many as `gpus` are enough for", expected="a number, 1 or more", judge="positive"),
    KubernetesKey(key="image", what="the image that workers run in; a role's own `image` wins, and the job's is used where this is missing", expected="an image such as registry.example/train:1.2", judge="image"),
    KubernetesKey(key="holdfast_image", what="the image with holdfast in it: the owner's pod, and the init container of each other; HOLDFAST_IMAGE", expected="an image such as registry.example/holdfast:0.2.0", judge="image"),
    KubernetesKey(key="pull_policy", what="when images are pulled: Always, IfNotPresent or Never", expected="Always, IfNotPresent or Never", judge="pull"),
    KubernetesKey(key="pull_secrets", what="names of secrets for the registry", expected="names of secrets, as in [registry]", judge="names"),
    KubernetesKey(key="gpus", what="devices of each pod", expected="a number of devices of each pod", judge="count", also=("gpus_per_node",)),
    KubernetesKey(key="gpu_resource", what="what Kubernetes calls the devices: `nvidia.com/gpu`, `amd.com/gpu`, `huawei.com/Ascend910` …", expected="the name of a resource with a domain, as in amd.com/gpu", judge="resource"),
    KubernetesKey(key="cpus", what="cores of each pod, requested and its limit; unless given, the sum of its workers' `resources.cpus`", expected="cores as Kubernetes writes them: 8, 1.5 or 500m", judge="quantity"),
    KubernetesKey(key="memory", what="memory of each pod, requested and its limit, as Kubernetes writes it: `64Gi`; unless given, the sum of its workers' `resources.memory` and 256 MiB for holdfast", expected="a size as Kubernetes writes it: 64Gi, 500Mi", judge="memory", also=("mem",)),
    KubernetesKey(key="shm", what="the limit of /dev/shm, which is in memory; unless given, the pod's memory", expected="a size as Kubernetes writes it: 8Gi", judge="memory"),
    KubernetesKey(key="queue", what="the queue of Kueue (LocalQueue) or Volcano; unless given, the job's `virtualCluster`", expected="the name of a queue", judge="subdomain"),
    KubernetesKey(key="gang", what="who places all pods at once: auto, none, native, kueue, coscheduling or volcano", expected=f"one of {', '.join(GANGS)}", judge="gang"),
    KubernetesKey(key="priority_class", what="the priority class of all pods", expected="the name of a priority class", judge="subdomain", also=("priority_class_name",)),
    KubernetesKey(key="scheduler", what="the scheduler's name", expected="a scheduler's name", judge="subdomain", also=("scheduler_name",)),
    KubernetesKey(key="service_account", what="the service account of the workers' pods, for a store of data for example; its token is mounted", expected="the name of a service account", judge="subdomain", also=("service_account_name",)),
    KubernetesKey(key="owner_service_account", what="one that is there already for the owner's pod, where a user may create no Role", expected="the name of a service account", judge="subdomain"),
    KubernetesKey(key="node_selector", what="labels that the nodes must have", expected="a mapping of labels, as in {pool: a100}", judge="texts"),
    KubernetesKey(key="tolerations", what="taints that the pods tolerate, as Kubernetes writes them, or `KEY[=VALUE][:EFFECT]`", expected="a list, as in [{key: gpu, operator: Exists}] or [gpu:NoSchedule]", judge="tolerations"),
    KubernetesKey(key="pod_security", what="the level of Pod Security that all pods pass: restricted, or baseline for images that need root", expected="restricted or baseline", judge="security"),
    KubernetesKey(key="template", what="a pod template, merged into the workers' pods; the user's container is called `task`", expected="a mapping with `metadata` and `spec`", judge="template", also=("pod_template",)),
    KubernetesKey(key="owner_template", what="a pod template, merged into the owner's pod; its container is called `owner`", expected="a mapping with `metadata` and `spec`", judge="template"),
    KubernetesKey(key="roles", what="by role: `per_pod` and `template` of its pods", expected="a mapping of roles, as in {ps: {per_pod: 1, template: {…}}}", judge="roles"),
    KubernetesKey(key="may_taint", what="a node that a person has to look at is tainted, so that no pod of any job is placed there; the owner's account needs a ClusterRole for it", expected="true or false", judge="yes"),
    KubernetesKey(key="exchange", what="the directory that the init container and the workers share", expected="an absolute path", judge="path"),
    KubernetesKey(key="owner_retries", what="how many pods of the owner may be lost", expected="a number, 0 or more", judge="count"),
    KubernetesKey(key="owner_cpus", what="cores that the owner's pod requests; its limit is twenty times as much", expected="cores as Kubernetes writes them: 500m", judge="quantity"),
    KubernetesKey(key="owner_memory", what="memory that the owner's pod requests; its limit is four times as much", expected="a size as Kubernetes writes it: 512Mi", judge="memory"),
    KubernetesKey(key="keep", what="how long after its end Kubernetes deletes the job (seconds, or `2d`); unless given, it stays", expected=amounts.DURATION, judge="seconds"),
)
# fmt: on

BY_KEY = {name: own for own in OWN for name in (own.key, *own.also)}
ROLE_KEYS = ("per_pod", "template")


class KubernetesOptions(Noun, frozen=True, kw_only=True):
    """A job's validated Kubernetes options."""

    values: dict[str, Any] = {}
    #: Maps each key to the option or file that has set it, for messages about errors from Kubernetes.
    origins: dict[str, str] = {}

    def text(self, key: str) -> str:
        return str(self.values.get(key) or "")

    def number(self, key: str) -> int | None:
        found = self.values.get(key)
        return found if isinstance(found, int) else None

    @property
    def asked(self) -> PodSizes:
        """The pod sizes that the user requests."""
        nodes = self.values.get("nodes")
        roles: dict[str, dict[str, Any]] = self.values.get("roles") or {}
        return PodSizes(
            nodes=nodes[1] if nodes else None,
            per_pod=self.number("per_pod"),
            roles={role: each["per_pod"] for role, each in roles.items() if "per_pod" in each},
            image=self.text("image"),
            gpus=self.number("gpus"),
            gpu_resource=self.text("gpu_resource") or "nvidia.com/gpu",
            cpus=self.text("cpus"),
            memory=self.text("memory"),
            templates={role: each["template"] for role, each in roles.items() if "template" in each},
            template=self.values.get("template") or {},
        )

    @property
    def least(self) -> int:
        """The minimum number of pods for the gang; 0 if the gang needs all of its pods."""
        nodes = self.values.get("nodes")
        return nodes[0] if nodes and nodes[0] < nodes[1] else 0


def kubernetes_options(layers: Sequence[Mapping[str, KubernetesValue]], roles: Sequence[str]) -> KubernetesOptions:
    """Validate and merge the settings. Raises `BadUsage` for the first mistake.

    `layers`: maps keys to values, one map for each source of settings, the strongest source first.
    `roles`: the job's role names.
    """
    found: dict[str, KubernetesValue] = {}
    for layer in reversed(layers):
        seen: dict[str, str] = {}
        for name, given in layer.items():
            own = _own(name, given)
            if own.key in seen:
                raise BadUsage(
                    f"{given.origin}: `{seen[own.key]}` says the same: expected one of the two", hint=given.hint
                )
            seen[own.key] = name
            found[own.key] = given
    exchange = str(found["exchange"].value) if "exchange" in found else EXCHANGE
    values = {}
    for key, given in found.items():
        own = BY_KEY[key]
        try:
            values[key] = JUDGES[own.judge](given.value, own.expected)
            if own.judge == "template" and (why := template_refusal(values[key], exchange)):
                raise BadOption(why)
            if own.judge == "roles":
                _judge_roles(values[key], roles, exchange)
        except BadOption as wrong:
            raise BadUsage(f"{given.origin}: {wrong}", hint=given.hint) from None
    return KubernetesOptions(values=values, origins={key: given.origin for key, given in found.items()})


def _own(name: str, given: KubernetesValue) -> KubernetesKey:
    key = name.strip().lstrip("-").replace("-", "_")
    if key in BY_KEY:
        return BY_KEY[key]
    import difflib  # imported late: only a mistake needs it

    near = difflib.get_close_matches(key.lower(), BY_KEY, n=1, cutoff=0.6)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    more = "" if near else "; other fields of a pod stand in `template`"
    raise BadUsage(f"{given.origin}: there is no such key{meant}{more}", hint=given.hint)


def _judge_roles(said: dict[str, Any], roles: Sequence[str], exchange: str) -> None:
    for role, keys in said.items():
        if role not in roles:
            raise BadOption(f"`{role}`: there is no such role; the job has {', '.join(roles)}")
        if not isinstance(keys, Mapping):
            raise BadOption(f"`{role}`: expected a mapping with {' or '.join(f'`{key}`' for key in ROLE_KEYS)}")
        for key, value in keys.items():
            if key not in ROLE_KEYS:
                raise BadOption(f"`{role}.{key}`: expected {' or '.join(f'`{each}`' for each in ROLE_KEYS)}")
            if key == "per_pod":
                positive(value, f"`{role}.per_pod` to be a number, 1 or more")
            elif why := template_refusal(value, exchange):
                raise BadOption(f"`{role}.template`: {why}")
