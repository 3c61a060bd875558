"""Decides which agents the owner admits. The answer to a hello is a welcome, or a refusal with a command for the user.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model.noun_base import Noun
from holdfast.wire.node_messages import PROTOCOL, Foreign, Hello, Refused, Welcome

if TYPE_CHECKING:
    from holdfast.model.job_spec import JobSetting, JobSpec, NodePlan

#: The most agents of a job: twice the largest measured gang. More of them mean that some program starts agents in an
#: endless loop.
MOST_NODES = 20_000

BAD_USAGE = 2
UNAVAILABLE = 251
TOO_FEW_DEVICES = 252


class AdmissionContext(Noun, frozen=True, kw_only=True):
    """The owner's data, to compare with an agent's hello (its first message)."""

    #: The version of holdfast that the owner runs.
    version: str
    job: str
    user: str
    #: The host name of the owner's machine.
    host: str
    job_id: str
    spec: JobSpec
    term: int
    #: The settings that the owner sends to each admitted agent.
    settings: tuple[JobSetting, ...] = ()


class KnownAgent(Noun, frozen=True, kw_only=True):
    """An agent that the owner has admitted."""

    agent: str
    boot: int
    #: The name that the agent's node has in this job.
    name: str
    #: The address by which other nodes reach this node.
    address: str
    node_rank: int | None = None


class KnownAgents:
    """All agents ever admitted, by agent id, node name and rank.

    Each look-up takes constant time.
    """

    def __init__(self) -> None:
        self._by_agent: dict[str, KnownAgent] = {}
        self._by_name: dict[str, str] = {}
        #: `--node-rank` → the id of the last agent with it; `_by_name`: node name → the id of the last agent with it.
        self._by_rank: dict[int, str] = {}

    def put(self, agent: KnownAgent) -> None:
        """Add an admitted agent, or update it."""
        self._by_agent[agent.agent] = agent
        self._by_name[agent.name] = agent.agent
        if agent.node_rank is not None:
            self._by_rank[agent.node_rank] = agent.agent

    def __len__(self) -> int:
        return len(self._by_agent)

    def agent(self, agent: str) -> KnownAgent | None:
        return self._by_agent.get(agent)

    def named(self, name: str) -> KnownAgent | None:
        return self._by_agent.get(self._by_name.get(name, ""))

    def ranked(self, rank: int | None) -> KnownAgent | None:
        """Return the last admitted agent with this `--node-rank`."""
        return None if rank is None else self._by_agent.get(self._by_rank.get(rank, ""))


def admit(
    hello: Hello | Foreign,
    address: str,
    owner: AdmissionContext,
    admitted: KnownAgents,
    is_live: Callable[[str], bool],
    is_lost: Callable[[str], bool] | None = None,
) -> Welcome | Refused:
    """Answer an agent's hello (its first message) with a welcome or a refusal. The caller adds an admitted agent to
    `admitted`.

    hello: the agent's first message.
    address: the address at which other nodes reach the agent.
    owner: the owner's data.
    admitted: the agents admitted so far.
    is_live: returns whether the node of this name is connected.
    is_lost: returns whether the node of this name is lost; None: every node without a connection counts as lost.
    """
    if refused := _stranger(hello, owner):
        return refused
    assert isinstance(hello, Hello), "another version's hello is refused by now"
    before = admitted.agent(hello.agent)
    refused = _rival(hello, owner) or _differs(hello, owner) or _no_room(hello, owner, admitted, is_live)
    if refused:
        return refused
    name = before.name if before is not None else _name(hello.node.name, address, admitted, is_live, is_lost)
    return Welcome(
        job_id=owner.job_id,
        node=name,
        spec=owner.spec,
        term=owner.term,
        owner=owner.host,
        settings=owner.settings,
    )


def _stranger(hello: Hello | Foreign, owner: AdmissionContext) -> Refused | None:
    """Return a refusal if the agent's version of holdfast differs from the owner's; else None.

    In that case the other fields of its hello (first message) are not compared, because they may mean something else.
    """
    if hello.protocol == PROTOCOL and hello.version == owner.version and isinstance(hello, Hello):
        return None
    theirs = f"holdfast {hello.version} (protocol {hello.protocol})"
    ours = f"holdfast {owner.version} (protocol {PROTOCOL})"
    return Refused(
        reason=f"this node has {theirs}, and the owner on {owner.host} has {ours}",
        hint=f"python3 -m pip install holdfast-run=={owner.version}   (on this node)",
        code=BAD_USAGE,
    )


def _rival(hello: Hello, owner: AdmissionContext) -> Refused | None:
    """Return a refusal if the agent's node also hosts an owner of this job; else None."""
    if not hello.hosts or hello.job != owner.job:
        return None
    return Refused(
        reason=f"two nodes are to host the owner: {hello.node.name} ({hello.hosts}), and {owner.host}, which answers "
        f"at {hello.dialled}",
        hint="holdfast run --rdzv-conf is_host=1 …   (or --node-rank 0 with --master-addr: on one node only)",
        code=BAD_USAGE,
    )


def _differs(hello: Hello, owner: AdmissionContext) -> Refused | None:
    """Return a refusal if the node's options differ from the owner's; else None."""
    if hello.job != owner.job:
        return Refused(
            reason=f"the owner on {owner.host} runs another job: {owner.job}; this node was started for {hello.job}",
            hint="holdfast run --rdzv-endpoint HOST:OTHERPORT …, or the same --rdzv-id on every node",
            code=BAD_USAGE,
        )
    if hello.user != owner.user:
        return Refused(
            reason=f"the owner on {owner.host} belongs to user {owner.user}, and this node runs as user {hello.user}: "
            "all nodes of a job have one user",
            hint=f"sudo -u {owner.user} holdfast run …, or another --rdzv-endpoint",
            code=BAD_USAGE,
        )
    here, there = _typed(hello.plan), _typed(owner.spec.nodes)
    if here != there:
        return Refused(
            reason=f"the owner on {owner.host} was started with --nnodes {there}, this node with --nnodes {here}: "
            "expected the same on every node",
            hint=f"holdfast run --nnodes {there} …",
            code=BAD_USAGE,
        )
    return None


def _no_room(
    hello: Hello, owner: AdmissionContext, admitted: KnownAgents, is_live: Callable[[str], bool]
) -> Refused | None:
    before = admitted.agent(hello.agent)
    if before is not None and hello.boot < before.boot:
        return Refused(
            reason=f"a newer agent of {before.name} has said hello (start {before.boot}; this is start {hello.boot})",
            hint=f"holdfast show {owner.job_id}",
            code=UNAVAILABLE,
        )
    rank = hello.node.node_rank
    taken = admitted.ranked(rank)
    if taken is not None and taken.agent != hello.agent and is_live(taken.name):
        return Refused(
            reason=f"--node-rank {rank} is taken by node {taken.name}",
            hint="holdfast run --node-rank N …   (another N on each node, or none at all)",
            code=BAD_USAGE,
        )
    # Compare only the number of workers of a single role. With several roles, the placement adapts the numbers to the
    # node's devices.
    roles = owner.spec.roles if len(owner.spec.roles) == 1 and owner.spec.binds else ()
    asked = sum(role.resources.devices or 0 for role in roles) * hello.node.slots
    has = len(hello.node.devices)
    if has < asked:
        each = asked // hello.node.slots
        return Refused(
            reason=f"this node has {has} device{'s'[: has != 1]}, and its {_workers(hello.node.slots)} "
            f"{asked} ({each} each)",
            hint=f"holdfast run --nproc-per-node {has // each} …" if has >= each else "holdfast devices",
            code=TOO_FEW_DEVICES,
        )
    if before is None and len(admitted) >= MOST_NODES:
        return Refused(
            reason=f"the job has {MOST_NODES} nodes, and takes no more",
            hint=f"holdfast show {owner.job_id}",
            code=UNAVAILABLE,
        )
    return None


def _workers(count: int) -> str:
    return f"{count} workers need" if count > 1 else "worker needs"


def _typed(plan: NodePlan) -> str:
    """Return the number of nodes in the form that `--nnodes` accepts: `4` or `2:4`."""
    return str(plan.most) if plan.least == plan.most else f"{plan.least}:{plan.most}"


def _name(
    own: str,
    address: str,
    admitted: KnownAgents,
    is_live: Callable[[str], bool],
    is_lost: Callable[[str], bool] | None,
) -> str:
    """Choose a node name: the machine's host name. If the name is taken, append the address, and then a number.

    A machine gets its earlier name again after a reboot, and for a new run. `own`: the machine's host name. `admitted`:
    the agents admitted so far.
    """
    count = 1
    while True:
        name = own if count == 1 else f"{own}@{address}" if count == 2 else f"{own}@{address}#{count - 1}"
        had = admitted.named(name)
        if had is None:
            return name
        # Give the name to another agent only if its node is lost. After a broken connection or a kill, the node's own
        # agent may still reconnect.
        if had.address == address and not is_live(name) and (is_lost is None or is_lost(name)):
            return name
        # Another node has the name, such as a second run on the same machine, so try the next name.
        count += 1
