"""What a starter sends to an agent, one line of JSON on its standard input, and the launch the agent builds from it.

The agent builds its launch as if the user had typed the command where it runs.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.launch_spec import NodesOrder
from holdfast.launch.multi_node import MultiNodeJob, endpoint, identity, slots_of, with_plan
from holdfast.launch.torchrun_options import number
from holdfast.model.job_spec import NodePlan
from holdfast.model.noun_base import Noun
from holdfast.settings.resolved_settings import Settings
from holdfast.settings.run_options import RunOptions
from holdfast.settings.settings_table import SETTINGS, Scope
from holdfast.version import __version__
from holdfast.wire.addresses import interfaces, is_loopback, offered

#: Fields of options that are not sent: what each run has for itself, and the name, which the order has.
_NOT_SENT = (*(setting.param for setting in SETTINGS if setting.scope is Scope.RUN), "name")
_UNSET = RunOptions()
_DIAL_S = 5.0


class AgentOrder(Noun, frozen=True, kw_only=True):
    """The order to an agent."""

    #: The version of holdfast.
    version: str
    #: The name of the platform that starts the agent.
    by: str
    #: The typed options that are sent.
    options: RunOptions
    #: The name of the job.
    name: str
    environment: dict[str, str]
    #: The directory in which the user typed the command.
    directory: str
    plan: NodePlan
    #: The host as it was listed: the node gets this name. Empty: the machine's own name.
    host: str = ""
    #: None: as many workers as the user typed for each node.
    slots: int | None = None
    #: The place in a list that the user has ordered.
    rank: int | None = None
    #: The addresses of the owner's machine, the likeliest first.
    addresses: tuple[str, ...]
    #: The user has typed one of the addresses.
    typed_address: bool
    port: int = 0
    #: 32 bytes as hexadecimal digits.
    key: str
    #: The id of this run of the command: a node has one agent of it at a time.
    run: str


class AgentJoin(Noun, frozen=True, kw_only=True):
    """What an agent knows about its place from its starter, besides the typed options."""

    order: AgentOrder
    #: The address at which the owner answers.
    address: str
    #: Its end means that the connection to the starter has ended; None: the starter has none.
    starter_fd: int | None
    #: Only one agent lives in it at a time.
    place: str
    #: The node's neighbourhood, as the platform reports it.
    labels: tuple[str, ...] = ()
    #: How the platform passes the job's key, for messages.
    key_from: str = ""
    #: How long the agent waits for a lost owner unless the user says it.
    owner_wait_s: float = 60.0


def order_for_agents(
    by: str,
    options: RunOptions,
    name: str,
    plan: NodePlan,
    key: bytes,
    *,
    environment: dict[str, str],
    slots: int | None = None,
) -> AgentOrder:
    """The part of the order that is the same for all agents of a job. Raises `BadUsage`.

    `by`: the name of the platform that starts them. `key`: its 32 bytes.
    """
    addresses, typed_address = owner_addresses(options)
    return AgentOrder(
        version=__version__,
        by=by,
        options=replace(options, **{name: getattr(_UNSET, name) for name in _NOT_SENT}),
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


def options_there(order: AgentOrder) -> RunOptions:
    """The typed options, where the agent runs."""
    options = replace(order.options, name=order.name, stdin="none")
    if order.slots is not None:
        options.nproc_per_node = str(order.slots)
    return options


def owner_addresses(options: RunOptions) -> tuple[tuple[str, ...], bool]:
    """Where the other nodes may find the owner, and whether the user has typed it. Raises `BadUsage`."""
    typed = options.local_addr or options.master_addr
    if options.rdzv_endpoint:
        typed, _ = endpoint(options, options.rdzv_backend or "static")
    if not typed:
        return offered(interfaces()) or ("127.0.0.1",), False
    if is_loopback(typed):
        raise BadUsage(
            f"{typed} is a loopback address, and the other hosts cannot reach it: expected an address of this machine",
            hint="ip -brief address",
        )
    return (typed.strip("[]"),), True


def owner_port(options: RunOptions) -> int:
    """The owner's port; 0: a free one, since the agents get its number."""
    if options.rdzv_endpoint and options.rdzv_endpoint.rpartition(":")[2].isdigit():
        return endpoint(options, options.rdzv_backend or "static")[1]
    return number(options, "master_port", options.master_port, 1, 65535) or 0


def answering(addresses: Sequence[str], port: int) -> str:
    """The address at which the owner's port answers from here; where none does, the first, to dial on."""
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=_DIAL_S):
                return address
        except OSError:
            continue
    return addresses[0]


def agent_launch_spec(options: RunOptions, settings: Settings, job: JobFile, joining: AgentJoin) -> MultiNodeJob:
    """The launch of an agent that a starter has started."""
    order = joining.order
    slots = order.slots or slots_of(options, job.spec, order.plan)
    nodes = NodesOrder(
        host=joining.address,
        port=order.port,
        key=bytes.fromhex(order.key),
        key_from=joining.key_from,
        job=identity(options, job.spec),
        slots=slots,
        hosts=False,
        hosts_why="the command was typed elsewhere",
        is_host=False,
        node_rank=order.rank,
        usual_owner_wait_s=joining.owner_wait_s,
        name=order.host,
        labels=joining.labels,
        starter_fd=joining.starter_fd,
        agent=hashlib.blake2b(joining.place.encode(), digest_size=8).hexdigest(),
        quiet=True,
    )
    return MultiNodeJob(with_plan(options, job, order.plan, slots), nodes, ())
