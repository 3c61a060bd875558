"""Create all objects of a job file in a cluster, or none."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any

import yaml
from msgspec.structs import replace

from holdfast.errors import BadUsage, HoldfastError
from holdfast.launch.image_runtime import images_of
from holdfast.launch.jobfile.job_file_mistakes import Mistakes, malformed
from holdfast.launch.jobfile.job_file_reader import parsed
from holdfast.launch.jobfile.secret_values import HIDDEN, hidden, secrets_of
from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.agent_pod import OwnersJob, pod
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble
from holdfast.platforms.kubernetes.objects.discovery import GangScheduler, ServerCapabilities, choose, path
from holdfast.platforms.kubernetes.objects.job_manifests import OwnerPodSpec, manifests, owned
from holdfast.platforms.kubernetes.objects.kubernetes_options import (
    KubernetesOptions,
    KubernetesValue,
    kubernetes_options,
)
from holdfast.platforms.kubernetes.objects.pod_plan import RESTRICTED, PodPlan, PodSizes, in_words, shapes
from holdfast.platforms.kubernetes.submit.create_refusals import create_refusal
from holdfast.platforms.kubernetes.submit.create_refusals import in_words as refused_in_words
from holdfast.platforms.kubernetes.submit.owner_admission import (
    OWNERS_KEYS,
    missing_rights,
    needs,
    owner_pod,
    shortage,
)
from holdfast.platforms.submission import SubmitRequest
from holdfast.platforms.submit_request import must_know_its_names
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.yaml_sections import deep_defaults, deep_section
from holdfast.untrusted import Malformed, yaml_value

#: Maximum size of a job file, in bytes. A ConfigMap holds 1 MiB, and contains the pod plan as well.
MOST_CONFIG_BYTES = 900_000


#: Maps a word in an image's name to Kubernetes' resource name for the devices that the image is made for.
_RESOURCES = {
    "rocm": "amd.com/gpu",
    "habana": "habana.ai/gaudi",
    "gaudi": "habana.ai/gaudi",
    "ascend": "huawei.com/Ascend910",
}


class PreparedManifests(Noun, frozen=True, kw_only=True):
    """A job file that was validated without a server."""

    #: The owner's objects as far as known without a server: the namespace may be empty, and the gang scheduler is
    #: missing.
    owner: OwnerPodSpec
    wanted: KubernetesOptions
    queue: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Prepared({self.owner.plan.name})"


def prepare(request: SubmitRequest, settings: Settings, text: bytes) -> PreparedManifests:
    """Validate a job file without a server. Raises `BadUsage` for a user's mistake."""
    given = request.path
    job = parsed(given, text, here=False)
    hint = f"{os.environ.get('EDITOR') or 'vi'} {given}"
    try:
        said = deep_section(text, object_names.PLATFORM) or {}
        copy = hidden(text)
        data = yaml_value(text)
    except Malformed as error:
        raise malformed(given, error) from None
    file = {
        key: KubernetesValue(value=value, origin=f"job file {given}: `{object_names.PLATFORM}.{key}`", hint=hint)
        for key, value in said.items()
    }
    typed = {
        key: KubernetesValue(value=each.value, origin=each.option, hint="holdfast submit --help")
        for key, each in request.options.items()
    }
    asked = kubernetes_options([typed, file, *_defaults(request)], [role.name for role in job.spec.roles])
    found = Mistakes(given)
    values = secrets_of(found, data.get("secrets"), here=True) if data.get("secrets") else {}
    found.end()
    name = str(settings.value("name")) if settings.source("name") is SettingSource.OPTION else job.spec.name
    try:
        made = shapes(job.spec, asked.asked)
    except ValueError as error:
        where = next((asked.origins[key] for key in ("nodes", "gpus") if key in asked.origins), f"job file {given}")
        raise BadUsage(f"{where}: {error}", hint=hint) from None
    image = asked.text("holdfast_image") or os.environ.get(object_names.IMAGE, "")
    if not image:
        raise BadUsage(
            "no image with holdfast is named: expected `holdfast_image` in the section `kubernetes:` of the job file "
            "or of the settings, --holdfast-image, or the variable HOLDFAST_IMAGE",
            hint=f"holdfast submit --holdfast-image registry.example/holdfast:0.2.0 {given}",
        )
    values_ = asked.values
    plan = PodPlan(
        name=object_names.object_name(name),
        namespace=asked.text("namespace"),
        job=name,
        shapes=made,
        spares=asked.number("spares") or 0,
        least=asked.least,
        holdfast_image=image,
        pull_policy=asked.text("pull_policy"),
        pull_secrets=values_.get("pull_secrets", ()),
        exchange=asked.text("exchange") or object_names.EXCHANGE,
        shm=asked.text("shm"),
        grace_s=job.spec.timers.grace_s,
        service_account=asked.text("service_account"),
        priority_class=asked.text("priority_class"),
        scheduler=asked.text("scheduler"),
        node_selector=values_.get("node_selector", {}),
        tolerations=values_.get("tolerations", ()),
        secrets=bool(values),
        pod_security=asked.text("pod_security") or RESTRICTED,
        may_taint=bool(values_.get("may_taint")),
    )
    _can_be_spared(plan, asked, hint)
    owner = OwnerPodSpec(
        plan=plan,
        job_file=copy.decode(),
        key=secrets.token_hex(32),
        words=request.run_words,
        secrets=values,
        service_account=asked.text("owner_service_account"),
        retries=6 if asked.number("owner_retries") is None else asked.number("owner_retries") or 0,
        keep_s=asked.number("keep"),
        cpus=asked.text("owner_cpus") or "100m",
        memory=asked.text("owner_memory") or "256Mi",
        template=values_.get("owner_template", {}),
    )
    containers = manifests(owner)[-1]["spec"]["template"]["spec"]["containers"]
    has = {each["name"]: str(each.get("value", "")) for one in containers for each in one.get("env") or ()}
    must_know_its_names(given, job, values, has)
    if len(copy) > MOST_CONFIG_BYTES:
        raise BadUsage(f"{given} has {len(copy)} bytes, and a ConfigMap holds {MOST_CONFIG_BYTES} beside the plan")
    notes = []
    if plan.name != name:
        notes.append(
            f"on Kubernetes the job {name} is called {plan.name}: names there have small letters, digits and -"
        )
    if not asked.text("gpu_resource") and any(role.resources.devices for role in job.spec.roles):
        notes += [
            f"image {image}: its name is of other devices than {PodSizes().gpu_resource}, which the pods ask for: "
            f"`gpu_resource: {resource}` asks for those"
            for image in images_of(job.spec)
            for word, resource in _RESOURCES.items()
            if word in image.lower()
        ]
    queue = asked.text("queue") or job.spec.virtual_cluster
    return PreparedManifests(owner=owner, wanted=asked, queue=queue, notes=tuple(notes))


def _can_be_spared(plan: PodPlan, asked: KubernetesOptions, hint: str) -> None:
    """Refuse spare pods and a range of nodes for pods of different shapes, which cannot replace each other."""
    if len(plan.shapes) == 1:
        return
    for key, wants in (("spares", plan.spares), ("nodes", plan.least)):
        if wants:
            raise BadUsage(
                f"{asked.origins[key]}: the pods of this job are not alike ({in_words(plan)}), and none can take "
                "another's place",
                hint=hint,
            )


def _defaults(request: SubmitRequest) -> list[dict[str, KubernetesValue]]:
    try:
        files = deep_defaults(request.home, object_names.PLATFORM)
    except Malformed as error:
        raise BadUsage(str(error), hint="holdfast config") from None
    return [
        {
            key: KubernetesValue(
                value=value, origin=f"{file}: `{object_names.PLATFORM}.{key}`", hint=f"grep -n {key!r} {file}"
            )
            for key, value in said.items()
        }
        for file, said in files
    ]


# --------------------------------------------------------------------------------------------- submitting to a server


def settled(prepared: PreparedManifests, server: ServerCapabilities, namespace: str) -> tuple[OwnerPodSpec, str]:
    """Adapt the job to the server. Return the owner's settings and a message about the gang scheduler. Raises
    `BadUsage` for a user's mistake.
    """
    owner, asked = prepared.owner, prepared.wanted
    plan = replace(owner.plan, namespace=owner.plan.namespace or namespace)
    try:
        chosen = choose(
            server,
            name=plan.name,
            namespace=plan.namespace,
            pods=plan.least or plan.nodes,
            queue=prepared.queue,
            asked=asked.text("gang") or "auto",
        )
    except ValueError as error:
        raise BadUsage(
            f"{asked.origins['gang']}: {error}", hint="kubectl api-resources | grep -i -e podgroup -e queue"
        ) from None
    return replace(_placed(owner, plan, chosen), pod_failure_policy=server.pod_failure_policy), chosen.note


def _placed(owner: OwnerPodSpec, plan: PodPlan, chosen: GangScheduler) -> OwnerPodSpec:
    plan = replace(plan, together=chosen.together, scheduler=plan.scheduler or chosen.scheduler)
    return replace(owner, plan=plan, groups=chosen.objects)


def dry(prepared: PreparedManifests) -> str:
    """Return the objects as YAML, for a server that supports all stable features. Send nothing."""
    owner = prepared.owner
    return as_yaml(replace(owner, plan=replace(owner.plan, namespace=owner.plan.namespace or "default")))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full. kubectl reads YAML aliases, but people find them hard to read."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml_text(value: Any) -> str:
    """Return one YAML document. The keys keep their order."""
    found: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return found


def as_yaml(owner: OwnerPodSpec) -> str:
    """Return the objects as YAML. The first agent's pod follows as a comment. The values of secrets are hidden."""
    owner = replace(owner, secrets=dict.fromkeys(owner.secrets, HIDDEN))
    made = [_yaml_text(each) for each in manifests(owner)]
    example = _yaml_text(pod(owner.plan, 0)).rstrip("\n").replace("\n", "\n# ")
    about = f"# The owner makes the pods of its agents: {in_words(owner.plan)}. The first of them:\n# {example}\n"
    return "---\n".join([*made, about])


class ClusterSubmission(Noun, frozen=True, kw_only=True):
    """A job that was submitted to a cluster."""

    plan: PodPlan
    uid: str
    #: A line about the job's gang scheduler.
    note: str = ""

    @property
    def pods(self) -> str:
        """Describes the job's pods for the user."""
        return in_words(self.plan)


def submit(
    api: BlockingClient, prepared: PreparedManifests, *, only_judge: bool = False
) -> tuple[ClusterSubmission, str]:
    """Create all objects of a job, or none. Return the submitted job, and the objects as YAML.

    `only_judge`: let the server validate each object, but create none. Raises `BadUsage` if the server rejects an
    object, and HoldfastError if it does not answer.
    """
    owner, note = settled(prepared, api.has(), api.namespace)
    _not_there_yet(api, owner.plan)
    note = "; ".join(filter(None, (note, _judged(api, prepared, owner))))
    text = as_yaml(owner)
    if only_judge:
        return ClusterSubmission(plan=owner.plan, uid="", note=note), text
    return ClusterSubmission(plan=owner.plan, uid=_made(api, prepared, owner), note=note), text


def _not_there_yet(api: BlockingClient, plan: PodPlan) -> None:
    """Raise `BadUsage` if the namespace has a Job of this name."""
    there = api.get(f"/apis/batch/v1/namespaces/{plan.namespace}/jobs/{plan.name}")
    if not there.ok:
        return  # ignore the failure: the server's validation of the objects will explain it better
    options = f"--platform kubernetes -n {plan.namespace}"
    labels = there.body["metadata"].get("labels") or {}
    if labels.get(object_names.MANAGED_BY) != "holdfast":
        raise BadUsage(
            f"a Job {plan.name}, which holdfast did not make, is in namespace {plan.namespace}: expected another name",
            hint="holdfast submit --name OTHER …",
        )
    over = any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in (there.body.get("status") or {}).get("conditions") or ()
    )
    if over:
        raise BadUsage(
            f"a job {plan.name} has ended in namespace {plan.namespace}, and its objects are there still: expected "
            "another name, or that one's deletion",
            hint=f"kubectl delete job {plan.name} -n {plan.namespace}; or holdfast submit --name OTHER …",
        )
    raise BadUsage(
        f"a job {plan.name} runs in namespace {plan.namespace}: expected another name, or that one's end",
        hint=f"holdfast show {plan.name} {options}; holdfast stop {plan.name} {options} --reason TEXT",
    )


_CANNOT_JUDGE = ("does not support dry run",)
#: Kinds that the server can only validate after other objects exist. A RoleBinding needs its Role.
_NEEDS_OTHERS = frozenset({"RoleBinding"})


def _judged(api: BlockingClient, prepared: PreparedManifests, owner: OwnerPodSpec) -> str:
    """Let the server validate each object, the owner's pod and the first pod of each shape, before any is created.

    Return a line for the user if the pods do not fit into a quota now; else "".
    """
    for each in manifests(owner):
        if each["kind"] in _NEEDS_OTHERS:
            continue
        _must(api.create(path(each), each, only_judge=True), each, prepared, judging=True)
    needed = [(_judged_pod(api, prepared, owner_pod(owner), owners=True), 1)]
    start = 0
    for shape in owner.plan.shapes:
        found = _judged_pod(api, prepared, pod(owner.plan, start))
        needed.append((found, owner.plan.least or shape.pods))
        start += shape.pods
    if owner.service_account and (lacks := missing_rights(api, owner)):
        space, account = owner.plan.namespace, owner.service_account
        verb, resource = lacks[0].split()
        raise BadUsage(
            f"{prepared.wanted.origins['owner_service_account']}: the job was not submitted: service account {account} "
            f"lacks rights that the owner needs in namespace {space}: {', '.join(lacks)}",
            hint=f"kubectl auth can-i {verb} {resource} -n {space} --as=system:serviceaccount:{space}:{account}",
        )
    quotas = api.get(f"/api/v1/namespaces/{owner.plan.namespace}/resourcequotas")
    never, now = shortage((quotas.body or {}).get("items") or (), needs(needed)) if quotas.ok else ("", "")
    if never:
        raise BadUsage(f"the job was not submitted: {never}", hint=f"kubectl describe quota -n {owner.plan.namespace}")
    return f"{now}: the job waits until other pods have ended" if now else ""


def _judged_pod(
    api: BlockingClient, prepared: PreparedManifests, wanted: dict[str, Any], *, owners: bool = False
) -> dict[str, Any]:
    """Let the server validate a pod. Return the pod with the fields that the server would add.

    A user without the right to create pods can still submit, because other accounts create them.
    """
    answer = api.create(path(wanted), wanted, only_judge=True)
    if not (answer.trouble is ApiTrouble.REFUSED and "cannot create resource" in answer.said):
        _must(answer, wanted, prepared, judging=True, owners=owners)
    return answer.body if answer.ok and isinstance(answer.body, dict) else wanted


def _made(api: BlockingClient, prepared: PreparedManifests, owner: OwnerPodSpec) -> str:
    """Create the objects. Return the Job's uid.

    The Job is created first, without a pod, so that all other objects can belong to it. It gets its pod last.
    """
    *others, job = manifests(owner)
    waiting = {**job, "spec": {**job["spec"], "parallelism": 0}}
    answer = api.create(path(job), waiting)
    _must(answer, job, prepared)
    uid = str(answer.body["metadata"]["uid"])
    reference = OwnersJob(name=owner.plan.name, uid=uid).reference
    done = [job]
    try:
        for each in others:
            _must(api.create(path(each), owned(each, reference)), each, prepared)
            done.append(each)
        _must(api.patch(path(job, named=True), {"spec": {"parallelism": 1}}), job, prepared)
    except BaseException:
        for each in reversed(done):
            api.delete(path(each, named=True))
        raise
    return uid


def _must(
    answer: Answered,
    manifest: Mapping[str, Any],
    prepared: PreparedManifests,
    *,
    judging: bool = False,
    owners: bool = False,
) -> None:
    """Raise an error if the server refused the object: `BadUsage` for a mistake in the job, else HoldfastError.

    `owners`: the object is the owner's pod.
    """
    if answer.ok or (judging and any(words in answer.said for words in _CANNOT_JUDGE)):
        return
    kind, meta = str(manifest["kind"]), manifest["metadata"]
    if answer.trouble is ApiTrouble.CONFLICT:
        raise BadUsage(
            f"the job was not submitted: {answer.said}; it is left from another job of this name, or of another maker",
            hint=f"kubectl get {kind.lower()} {meta['name']} -n {meta['namespace']} --show-labels; "
            "holdfast submit --name OTHER …",
        )
    found = create_refusal(answer, kind=kind, namespace=str(meta["namespace"]))
    if owners:
        key = OWNERS_KEYS.get(found.key, found.key)
        found = replace(found, said=f"the owner's pod is refused: {found.said}", key=key)
    error = HoldfastError if found.ours else BadUsage
    raise error(refused_in_words(found, prepared.wanted.origins), hint=found.hint)
