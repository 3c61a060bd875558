"""The order that a starter (the process that starts agents on other nodes) sends to an agent, and the launch
specification that the agent builds from it.

The order is one line of JSON on the agent's stdin. The agent builds its launch specification as if the user had typed
the command on the agent's node."""

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

#: The option fields that the order does not contain: settings of scope `run`, and the job's name, which is a field of
#: the order itself.
_NOT_SENT = (*(setting.param for setting in SETTINGS if setting.scope is Scope.RUN), "name")
_UNSET = RunOptions()
_DIAL_S = 5.0


class AgentOrder(Noun, frozen=True, kw_only=True):
    """The order that a starter (the process that starts agents on other nodes) sends to an agent."""

    #: The version of the starter's holdfast.
    version: str
    #: The name of the platform that starts the agent.
    by: str
    #: The options that the user typed, without those in `_NOT_SENT`.
    options: RunOptions
    #: The name of the job.
    name: str
    environment: dict[str, str]
    #: The directory in which the user typed the command.
    directory: str
    plan: NodePlan
    #: The host's name in the user's list, which becomes the node's name. Empty: the machine's own name.
    host: str = ""
    #: The number of workers on this node. None: the number that the user typed for all nodes.
    slots: int | None = None
    #: The node's index in the user's list of hosts; None if the order of the list does not matter.
    rank: int | None = None
    #: The addresses of the owner's machine. The first is the address that agents most likely reach.
    addresses: tuple[str, ...]
    #: True if the user typed the owner's address.
    typed_address: bool
    port: int = 0
    #: The job's key: 32 bytes as hexadecimal digits.
    key: str
    #: The id of this run of the command. A node has at most one agent of a run at a time.
    run: str


class AgentJoin(Noun, frozen=True, kw_only=True):
    """What an agent receives from its starter about its node, in addition to the typed options."""

    order: AgentOrder
    #: The address at which the owner answers this agent.
    address: str
    #: A descriptor whose end of file means that the connection to the starter has ended. None: there is no connection.
    starter_fd: int | None
    #: A text that identifies the place in which the agent runs. At most one agent runs in each place at a time.
    place: str
    #: The node's position in the network (rack, switch), as the platform reports it.
    labels: tuple[str, ...] = ()
    #: A clause for messages that says how the platform passes the job's key.
    key_from: str = ""
    #: Seconds that the agent waits for a lost owner, unless the user has set another value.
    owner_wait_s: float = 60.0

    def launched(self, options: RunOptions, settings: Settings, job: JobFile) -> MultiNodeJob:
        """Return the launch specification of an agent that a starter has started."""
        order = self.order
        slots = order.slots or slots_of(options, job.spec, order.plan)
        nodes = NodesOrder(
            host=self.address,
            port=order.port,
            key=bytes.fromhex(order.key),
            key_from=self.key_from,
            job=identity(options, job.spec),
            slots=slots,
            hosts=False,
            hosts_why="the command was typed elsewhere",
            is_host=False,
            node_rank=order.rank,
            usual_owner_wait_s=self.owner_wait_s,
            name=order.host,
            labels=self.labels,
            starter_fd=self.starter_fd,
            agent=hashlib.blake2b(self.place.encode(), digest_size=8).hexdigest(),
            quiet=True,
        )
        return MultiNodeJob(with_plan(options, job, order.plan, slots), nodes, ())


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
    """Return the order for agents, with the values that are the same for all agents of a job. Raises `BadUsage`.

    `by`: the name of the platform that starts the agents. `key`: the job's 32 bytes. `slots`: the number of workers on
    each node; None: the number in the user's options.
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
    """Encode the order as one line of JSON."""
    return msgspec.json.encode(order) + b"\n"


def options_there(order: AgentOrder) -> RunOptions:
    """Return the options of the agent on this node: those that the user typed on the owner's node, with the job's name,
    this node's number of workers, and no stdin. `order`: the settings from the owner's node.
    """
    options = replace(order.options, name=order.name, stdin="none")
    if order.slots is not None:
        options.nproc_per_node = str(order.slots)
    return options


def owner_addresses(options: RunOptions) -> tuple[tuple[str, ...], bool]:
    """Return the addresses at which other nodes may reach the owner, and whether the user typed the address. Raises
    `BadUsage`."""
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
    """Return the owner's port. 0 means any free port, whose number the agents will receive."""
    if options.rdzv_endpoint and options.rdzv_endpoint.rpartition(":")[2].isdigit():
        return endpoint(options, options.rdzv_backend or "static")[1]
    return number(options, "master_port", options.master_port, 1, 65535) or 0


def answering(addresses: Sequence[str], port: int) -> str:
    """Return the first address at which the owner's port answers this machine. If none answers, return the first
    address, so that the caller can retry."""
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=_DIAL_S):
                return address
        except OSError:
            continue
    return addresses[0]
