"""Plan the pods of a job. Each node of the gang is one pod, which its workers share.

`holdfast submit` makes the plan and stores it in the job's ConfigMap, beside the job file. The owner creates the pods
according to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_template import merged

#: Memory for a pod's agent in bytes, in addition to its workers' memory.
FOR_HOLDFAST_BYTES = 256 << 20

RESTRICTED = "restricted"


class PodShape(Noun, frozen=True, kw_only=True):
    """A group of identical pods. Pods of the first shape have the first indices."""

    roles: tuple[str, ...]
    pods: int
    #: Number of workers in each pod.
    workers: int
    image: str
    #: Requests and limits of the user's container, in Kubernetes' units: `{"cpu": "8", "nvidia.com/gpu": "4"}`.
    resources: dict[str, str] = {}
    #: Template that is merged into each pod (`holdfast.platforms.kubernetes.objects.pod_template`).
    template: dict[str, Any] = {}


class GangPlacement(Noun, frozen=True, kw_only=True):
    """How the cluster places the pods of a job: all of them at once or none (see `discovery.py` in this folder)."""

    #: The gang scheduler. If empty, the cluster has none, and the gang itself waits for all of its pods.
    kind: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    #: Fields that the gang scheduler needs in each pod's spec.
    spec: dict[str, Any] = {}


class PodPlan(Noun, frozen=True, kw_only=True):
    """The plan of one job's pods."""

    #: Name of the job's objects.
    name: str
    namespace: str
    #: The job's name as the user wrote it.
    job: str
    shapes: tuple[PodShape, ...]
    #: Number of spare pods. They have the last shape.
    spares: int = 0
    #: Minimum number of pods for the gang; 0 if the gang needs all of its pods.
    least: int = 0
    holdfast_image: str
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    exchange: str = object_names.EXCHANGE
    #: Size limit of /dev/shm in Kubernetes' units. If empty, the container's memory is the limit.
    shm: str = ""
    grace_s: float = 30.0
    #: Service account of agents' pods. If empty, they get the namespace's default account, without its token.
    service_account: str = ""
    priority_class: str = ""
    scheduler: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    together: GangPlacement = GangPlacement()
    #: Whether the job's Secret also contains the values of the job file's `secrets`.
    secrets: bool = False
    #: The level of Pod Security that the pods pass: `restricted` or `baseline`.
    pod_security: str = RESTRICTED
    #: Whether the owner may taint a node that a person must check.
    may_taint: bool = False

    @property
    def nodes(self) -> int:
        """Number of pods that take part in the job, without spares."""
        return sum(shape.pods for shape in self.shapes)

    def shape(self, index: int) -> PodShape:
        """Return the containers and resources (the shape) of a pod. Spares have the last shape.

        Raises IndexError if the job has no pod with this index.
        """
        if not 0 <= index < self.nodes + self.spares:
            raise IndexError(index)
        for shape in self.shapes:
            if index < shape.pods:
                return shape
            index -= shape.pods
        return self.shapes[-1]


class PodSizes(Noun, frozen=True, kw_only=True):
    """The requested sizes of a job's pods."""

    #: Total number of pods, over all roles. None: derived from the other values.
    nodes: int | None = None
    per_pod: int | None = None
    #: Maps a role to the number of its workers in each pod.
    roles: dict[str, int] = {}
    image: str = ""
    #: Number of GPUs in each pod.
    gpus: int | None = None
    gpu_resource: str = "nvidia.com/gpu"
    cpus: str = ""
    memory: str = ""
    #: Maps a role to the template for its pods.
    templates: dict[str, dict[str, Any]] = {}
    template: dict[str, Any] = {}


def shapes(spec: JobSpec, asked: PodSizes) -> tuple[PodShape, ...]:
    """Plan the pods of a job. Raises ValueError, with one sentence, if the sizes are impossible.

    If the number of pods is set, the workers of all roles are spread evenly over the pods, in the order of their ranks.
    Otherwise each role has pods of its own. A pod then has `per_pod` workers, or as many as its GPUs suffice for, or
    one.
    """
    return _one_for_all(spec, asked, asked.nodes) if asked.nodes is not None else _by_role(spec, asked)


def _one_for_all(spec: JobSpec, asked: PodSizes, nodes: int) -> tuple[PodShape, ...]:
    """Spread all workers evenly over `nodes` pods. Raises ValueError if roles need different pods."""
    images = {role.name: image_of(spec, role, asked) for role in spec.roles}
    if len(set(images.values())) > 1:
        told = ", ".join(f"{role} {image}" for role, image in images.items())
        raise ValueError(f"roles with images of their own have pods of their own ({told}), and `nodes` mixes them")
    if asked.templates:
        role = next(iter(asked.templates))
        raise ValueError(f"role {role} has a template of its own, so pods of its own, and `nodes` mixes them")
    total = spec.world_size
    if nodes > total:
        raise ValueError(f"{total} {'worker' if total == 1 else 'workers'} cannot use {nodes} pods")
    each = -(-total // nodes)
    if each * (nodes - 1) >= total:
        raise ValueError(
            f"{total} workers with {each} in each pod fill {-(-total // each)} pods, and {nodes} were asked for"
        )
    whole = [role for role in spec.roles for _ in range(role.count)]
    found = (
        _shape(whole[start : start + each], next(iter(images.values())), asked, asked.template)
        for start in range(0, total, each)
    )
    return tuple(_alike(found))


def _by_role(spec: JobSpec, asked: PodSizes) -> tuple[PodShape, ...]:
    """Plan separate pods for each role."""
    found = []
    for role in spec.roles:
        each = min(asked.roles.get(role.name) or asked.per_pod or _by_gpus(role, asked), role.count)
        own = asked.templates.get(role.name)
        template = _both(asked.template, own) if own else asked.template
        image = image_of(spec, role, asked)
        full, rest = divmod(role.count, each)
        found.append(replace(_shape([role] * each, image, asked, template), pods=full))
        if rest:
            found.append(_shape([role] * rest, image, asked, template))
    return tuple(found)


def _both(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return merged(common, own)


def image_of(spec: JobSpec, role: Role, asked: PodSizes) -> str:
    """Return the image of a role's workers. Raises ValueError if none is set."""
    if image := role.image or asked.image or spec.image:
        return image
    raise ValueError(f"role {role.name} has no image: expected `image: NAME` in the job file")


def _by_gpus(role: Role, asked: PodSizes) -> int:
    devices = role.resources.devices
    if asked.gpus is None or devices == 0:
        return 1
    return max(1, asked.gpus // (devices or 1))


def _shape(roles: Sequence[Role], image: str, asked: PodSizes, template: dict[str, Any]) -> PodShape:
    return PodShape(
        roles=tuple(dict.fromkeys(role.name for role in roles)),
        pods=1,
        workers=len(roles),
        image=image,
        resources=_resources(roles, asked),
        template=template,
    )


def _resources(roles: Sequence[Role], asked: PodSizes) -> dict[str, str]:
    """Return a pod's resources: the values of the `kubernetes:` section, or else the sum of its workers' needs."""
    found = {}
    cpus = [role.resources.cpus for role in roles]
    memory = [role.resources.memory_bytes for role in roles]
    devices = sum(role.resources.devices or 0 for role in roles)
    if asked.cpus:
        found["cpu"] = asked.cpus
    elif all(cpus):
        found["cpu"] = _milli(sum(each or 0 for each in cpus))
    if asked.memory:
        found["memory"] = asked.memory
    elif all(memory):
        found["memory"] = _bytes(sum(each or 0 for each in memory) + FOR_HOLDFAST_BYTES)
    gpus = devices if asked.gpus is None or devices else asked.gpus
    if asked.gpus is not None and devices > asked.gpus:
        raise ValueError(
            f"{len(roles)} {'worker' if len(roles) == 1 else 'workers'} of a pod need {devices} devices, and `gpus` "
            f"gives it {asked.gpus}"
        )
    if asked.gpus is not None and any(role.resources.devices != 0 for role in roles):
        gpus = asked.gpus
    if gpus:
        found[asked.gpu_resource] = str(gpus)
    return found


def _milli(cpus: float) -> str:
    return f"{cpus:g}" if float(cpus).is_integer() else f"{round(cpus * 1000)}m"


def _bytes(number: int) -> str:
    return f"{number >> 20}Mi" if number % (1 << 20) == 0 else str(number)


def _alike(found: Iterator[PodShape]) -> Iterator[PodShape]:
    """Merge successive equal pods into one `PodShape` with their number."""
    last: PodShape | None = None
    for shape in found:
        if last is not None and replace(last, pods=1) == shape:
            last = replace(last, pods=last.pods + 1)
            continue
        if last is not None:
            yield last
        last = shape
    if last is not None:
        yield last


def in_words(plan: PodPlan) -> str:
    """Describe the pods in words, such as `2 pods of 8 workers (worker; 8 nvidia.com/gpu)`."""
    parts = []
    for shape in plan.shapes:
        each = f"{shape.workers} {'worker' if shape.workers == 1 else 'workers'}"
        what = ", ".join(f"{number} {key}" for key, number in sorted(shape.resources.items()))
        pods = "1 pod" if shape.pods == 1 else f"{shape.pods} pods"
        parts.append(f"{pods} of {each} ({'+'.join(shape.roles)}{'; ' + what if what else ''})")
    spare = f", {plan.spares} spare" if plan.spares else ""
    return ", ".join(parts) + spare


def resources_of(shape: PodShape) -> Mapping[str, str]:
    """Return the resources of the init container: those of the pod without its devices."""
    return {key: value for key, value in shape.resources.items() if "/" not in key}
