"""Start the agent in a pod on Kubernetes. The job's owner runs in another pod."""

from __future__ import annotations

import os

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.agent_launch import AgentJoin, AgentOrder
from holdfast.platforms.kubernetes.kubernetes_launch import mounted_key
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_context import ORDER, node_name
from holdfast.untrusted import Malformed, json_as
from holdfast.version import __version__

MOST_ORDER_BYTES = 256 << 10
#: Variables of the agent that workers do not need.
_OF_THE_AGENT = (ORDER, object_names.KEY_FILE, object_names.OWNER_ADDRESS, object_names.NODE_INDEX, object_names.SLOTS)


def join_in_pod() -> AgentJoin:
    """Read this agent's order from the environment, and remove its variables there. The key is read from a file."""
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
