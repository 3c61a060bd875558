"""What a starter sends to an agent, one line of JSON on its standard input, and the launch the agent builds from it.

The agent builds its launch as if the user had typed the command where it runs.
"""

from __future__ import annotations

import enum
import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.launch_spec import NodesOrder
from holdfast.launch.multi_node import MultiNodeJob, endpoint, identity, owner_wait_s, port_range, slots_of, with_plan
from holdfast.launch.torchrun_options import number
from holdfast.model.job_spec import NodePlan
from holdfast.model.noun_base import Noun
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.version import __version__
from holdfast.wire.addresses import interfaces, is_loopback, offered

TOLD = ("on_event", "on_end", "notify", "summary", "traces", "notice_timeout")
"""Not sent: the owner notifies others, and addresses in `notify` are secret."""
_NOT_SENT = (
    "hosts",
    "hostfile",
    "ssh",
    "report",
    "metrics_file",
    *TOLD,
    "json",
    "events",
    "job_key",
    "name",
    "stdin",
    "unheeded",
)
"""Not sent: options for the machine where the user typed them, and those that are sent in another form."""


_DIAL_S = 5.0


class StartedBy(enum.StrEnum):
    """What has started an agent."""

    SSH = "ssh"
    SLURM = "srun"
    KUBERNETES = "kubernetes"


_KEY_FROM = {
    StartedBy.SSH: "ssh, on standard input",
    StartedBy.SLURM: "srun, on standard input",
    StartedBy.KUBERNETES: "the job's Secret",
}


class AgentOrder(Noun, frozen=True, kw_only=True):
    """The order to an agent."""

    version: str
    """The version of holdfast."""
    by: StartedBy
    given: dict[str, Any]
    """The typed options, by parameter names."""
    name: str
    """The name of the job."""
    environment: dict[str, str]
    directory: str
    """The directory in which the user typed the command."""
    plan: NodePlan
    host: str = ""
    """The host as it was listed: the node gets this name. Empty: the machine's own name."""
    slots: int | None = None
    """None: as many workers as the user typed for each node."""
    rank: int | None = None
    """The place in a list that the user has ordered."""
    addresses: tuple[str, ...]
    """The addresses of the owner's machine, the likeliest first."""
    typed_address: bool
    """The user has typed one of the addresses."""
    port: int = 0
    key: str
    """32 bytes as hexadecimal digits."""
    run: str
    """The id of this run of the command: a node has one agent of it at a time."""


class AgentJoin(Noun, frozen=True, kw_only=True):
    """What an agent knows about its place from its starter, besides the typed options."""

    order: AgentOrder
    address: str
    """The address at which the owner answers."""
    starter_fd: int | None
    """Its end means that the connection to the starter has ended; None: the starter has none."""
    place: str
    """Only one agent lives in it at a time."""
    labels: tuple[str, ...] = ()
    """The node's neighbourhood, as the platform reports it."""


def order_for_agents(
    by: StartedBy,
    given: Mapping[str, Any],
    name: str,
    plan: NodePlan,
    key: bytes,
    *,
    environment: dict[str, str],
    slots: int | None = None,
) -> AgentOrder:
    """The part of the order that is the same for all agents of a job. `key`: its 32 bytes. Raises `BadUsage`."""
    addresses, typed_address = owner_addresses(given)
    return AgentOrder(
        version=__version__,
        by=by,
        given={name: value for name, value in given.items() if name not in _NOT_SENT},
        name=name,
        environment=environment,
        directory=str(Path.cwd()),
        plan=plan,
        slots=slots,
        addresses=addresses,
        typed_address=typed_address,
        key=key.hex(),
        run=os.urandom(8).hex(),
    )


def line_of(order: AgentOrder) -> bytes:
    """The order as it is sent."""
    return msgspec.json.encode(order) + b"\n"


def given_there(order: AgentOrder) -> dict[str, Any]:
    """The typed options, where the agent runs."""
    given = {**order.given, "words": tuple(order.given["words"]), "name": order.name, "stdin": "none", "unheeded": []}
    given |= dict.fromkeys(("hosts", "hostfile", "ssh", "report", "metrics_file", *TOLD, "json", "events", "job_key"))
    if order.slots is not None:
        given["nproc_per_node"] = str(order.slots)
    return given


def owner_addresses(given: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Where the other nodes may find the owner, and whether the user has typed it. Raises `BadUsage`."""
    typed = given["local_addr"] or given["master_addr"]
    if given["rdzv_endpoint"]:
        typed, _ = endpoint(given, given.get("rdzv_backend") or "static")
    if not typed:
        return offered(interfaces()) or ("127.0.0.1",), False
    if is_loopback(typed):
        raise BadUsage(
            f"{typed} is a loopback address, and the other hosts cannot reach it: expected an address of this machine",
            hint="ip -brief address",
        )
    return (typed.strip("[]"),), True


def owner_port(given: Mapping[str, Any]) -> int:
    """The owner's port; 0: a free one, since the agents get its number."""
    if given["rdzv_endpoint"] and given["rdzv_endpoint"].rpartition(":")[2].isdigit():
        return endpoint(given, given.get("rdzv_backend") or "static")[1]
    return number(given, "master_port", given["master_port"], 1, 65535) or 0


def answering(addresses: Sequence[str], port: int) -> str:
    """The address at which the owner's port answers from here; where none does, the first, to dial on."""
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=_DIAL_S):
                return address
        except OSError:
            continue
    return addresses[0]


def agent_launch_spec(given: Mapping[str, Any], settings: Settings, job: JobFile, joining: AgentJoin) -> MultiNodeJob:
    """The launch of an agent that a starter has started."""
    order = joining.order
    slots = order.slots or slots_of(given, job.spec, order.plan)
    nodes = NodesOrder(
        host=joining.address,
        port=order.port,
        key=bytes.fromhex(order.key),
        key_from=_KEY_FROM[order.by],
        job=identity(given, job.spec),
        slots=slots,
        hosts=False,
        hosts_why="the command was typed elsewhere",
        is_host=False,
        node_rank=order.rank,
        port_range=port_range(settings),
        owner_wait_s=_owner_wait_s(order.by, settings),
        name=order.host,
        labels=joining.labels,
        starter_fd=joining.starter_fd,
        agent=hashlib.blake2b(joining.place.encode(), digest_size=8).hexdigest(),
        quiet=True,
    )
    return MultiNodeJob(with_plan(given, job, order.plan, slots), nodes, ())


def _owner_wait_s(by: StartedBy, settings: Settings) -> float:
    """Kubernetes takes 5 minutes and more to replace the owner's pod of a lost node."""
    if by is StartedBy.KUBERNETES and settings.source("owner-wait") is SettingSource.DEFAULT:
        return 600.0
    return owner_wait_s(settings)
