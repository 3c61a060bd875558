"""Start a job on Kubernetes.

The owner has a pod of its own and creates one pod per node. Each node's agent connects to the owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.agent_launch import AgentJoin, AgentOrder, order_for_agents
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.launch_spec import NodesOrder
from holdfast.launch.multi_node import (
    MultiNodeJob,
    identity,
    owner_wait_s,
    plan_of,
    port_range,
    readable_again,
    rendezvous_conf,
    with_plan,
)
from holdfast.launch.torchrun_options import named
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_context import ORDER, node_name, plan_here
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, in_words
from holdfast.safe_files import read_file
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.run_options import RunOptions
from holdfast.untrusted import Malformed, json_as
from holdfast.version import __version__
from holdfast.wire.job_key import parse_key

#: Default of `--join-timeout`, in seconds. Pods may wait long for resources and for images.
JOIN_S = 3600.0
#: Default of `--replace-wait` if fewer than MIN pods are left, in seconds. Kubernetes must place a new pod, and may
#: have to pull its image.
REPLACE_S = 600.0
#: Default of `--replace-wait` if at least MIN pods are left, in seconds.
REFILL_S = 30.0
MOST_KEY_BYTES = 128
MOST_ORDER_BYTES = 256 << 10
#: Environment variables that agents need and workers must not inherit.
_OF_THE_AGENT = (ORDER, object_names.KEY_FILE, object_names.OWNER_ADDRESS, object_names.NODE_INDEX, object_names.SLOTS)


def over_pods(
    options: RunOptions, settings: Settings, job_of: Callable[[bool], JobFile], nodes: tuple[int, int]
) -> MultiNodeJob:
    """Return a job whose owner runs in this process and whose agents run in the planned pods. Raises `BadUsage`."""
    readable_again(options)
    pods = plan_here(os.environ)
    job = job_of(True)
    conf, strange = rendezvous_conf(options)
    if options.nnodes is None:
        nodes = (pods.least or pods.nodes, pods.nodes)
    plan = replace(plan_of(settings, conf, nodes, settings.count("spares") or pods.spares), apart=True, replaced=True)
    if settings.source("join-timeout") is SettingSource.DEFAULT and "join_timeout" not in conf:
        plan = replace(plan, join_s=JOIN_S)
    if usual_wait := settings.source("replace-wait") is SettingSource.DEFAULT:
        plan = replace(plan, replace_s=REPLACE_S)
    if plan.least < plan.most:
        plan = replace(plan, refill_s=REFILL_S if usual_wait else plan.replace_s)
        if len(pods.shapes) > 1:
            raise BadUsage(
                f"{named(options, 'nnodes')}: the pods of this job are not alike ({in_words(pods)}): expected one "
                "number of pods, because none can take another's place",
                hint=f"holdfast submit --platform kubernetes --nodes {pods.nodes} …",
            )
    order = NodesOrder(
        host=object_names.owner_address(pods.name, pods.namespace).rpartition(":")[0],
        port=object_names.PORT,
        key=mounted_key(os.environ),
        key_from=os.environ[object_names.KEY_FILE],
        job=identity(options, job.spec),
        slots=1,  # unused: this process has no worker
        hosts=True,
        hosts_why=f"it is the owner's pod of the Kubernetes job {pods.name}",
        is_host=True,
        local_addr=options.local_addr or "",
        port_range=port_range(settings),
        owner_wait_s=owner_wait_s(settings),
        takes_part=False,
    )
    os.environ[ORDER] = _order(options, job, plan, pods)
    notes = (f"--rdzv-conf {', '.join(strange)}: no meaning here, ignored",) if strange else ()
    return MultiNodeJob(with_plan(options, job, plan, max(shape.workers for shape in pods.shapes)), order, notes)


def _order(options: RunOptions, job: JobFile, plan: Any, pods: PodPlan) -> str:
    """Return the settings that all agents share, as JSON for a variable in their pods.

    The settings contain no key, and no variables of the owner's pod.
    """
    typed = replace(options, job=f"{pods.exchange}/{object_names.JOB_FILE}", local_addr=None)
    found = order_for_agents(object_names.PLATFORM, typed, job.spec.name, plan, b"", environment={})
    return msgspec.json.encode(replace(found, directory="", addresses=(), port=object_names.PORT)).decode()


def mounted_key(environment: Mapping[str, str]) -> bytes:
    """Read the job's key from its mounted Secret. Raises `BadUsage` for a user's mistake.

    Every user in the job's pods can read the file.
    """
    path = environment.get(object_names.KEY_FILE, "")
    name, namespace = environment.get(object_names.JOB_NAME, "JOB"), environment.get(object_names.NAMESPACE, "default")
    hint = f"kubectl -n {namespace} describe secret {object_names.key_secret(name)}"
    if not path:
        raise BadUsage(f"{object_names.KEY_FILE} is not set: expected the path of the job's key in this pod", hint=hint)
    try:
        found = parse_key(read_file(Path(path), MOST_KEY_BYTES))
    except OSError as error:
        raise BadUsage(
            f"{object_names.KEY_FILE}: the key file {path} cannot be read: {error.strerror}", hint=hint
        ) from None
    if found is None:
        raise BadUsage(f"{object_names.KEY_FILE}: {path} holds no key: expected 32 bytes, or 64 hex digits", hint=hint)
    return found


def join_in_pod() -> AgentJoin:
    """Read this agent's order from environment variables, then remove them. The key is read from a file."""
    environment = dict(os.environ)
    host, _, port = environment[object_names.OWNER_ADDRESS].rpartition(":")
    text = environment.get(ORDER, "")
    if not text or not host or not port.isdigit():
        raise BadUsage(
            f"{object_names.OWNER_ADDRESS}={environment[object_names.OWNER_ADDRESS]!r} and {ORDER} of "
            f"{len(text)} bytes: expected HOST:PORT of the job's owner, and the order that its owner writes into the "
            "pods of its agents",
            hint="holdfast submit --platform kubernetes job.yaml",
        )
    order = _order_in(text)
    key = mounted_key(environment)
    slots = environment.get(object_names.SLOTS, "")
    pod = environment.get(object_names.POD) or os.uname().nodename
    order = replace(
        order,
        key=key.hex(),
        host=node_name(environment.get(object_names.KUBERNETES_NODE, ""), pod),
        slots=int(slots) if slots.isdigit() and int(slots) else None,
        port=int(port),
    )
    for name in _OF_THE_AGENT:
        os.environ.pop(name, None)
    return AgentJoin(
        order=order,
        address=host,
        starter_fd=None,
        place=environment.get(object_names.POD_UID) or pod,
        labels=(environment.get(object_names.NODE_INDEX, ""),),
    )


def _order_in(text: str) -> AgentOrder:
    try:
        order = json_as(text, AgentOrder, most_bytes=MOST_ORDER_BYTES)
    except Malformed as error:
        raise BadUsage(
            f"holdfast {__version__} does not understand the order in {ORDER}: {error}: expected the version of the "
            "owner's image in the pods of its agents too",
            hint="kubectl get pod -o jsonpath='{.items[*].spec.initContainers[0].image}'",
        ) from None
    if order.version != __version__:
        raise BadUsage(
            f"the owner has holdfast {order.version}, and this pod has {__version__}: expected one version: the pod's "
            "comes from the image of its init container",
            hint="kubectl get pod -o jsonpath='{.items[*].spec.initContainers[0].image}'",
        )
    return order
