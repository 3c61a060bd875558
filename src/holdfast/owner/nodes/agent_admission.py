"""Decides which agents the owner admits, and gives each node its name. A refusal contains the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.model import events as ev
from holdfast.node.agent.local_node import user_here
from holdfast.version import __version__
from holdfast.wire.admission import AdmissionContext, KnownAgent, KnownAgents, admit
from holdfast.wire.node_messages import Foreign, Hello, Refused, Welcome

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.record.job_directory import JobPlace


class AdmissionAnswer(msgspec.Struct, frozen=True):
    """The answer to an agent's hello (its first message): a welcome with an event for the gang, or a refusal.

    If all fields are None, the hello came from this owner's own process.
    """

    welcome: Welcome | None = None
    joined: ev.NodeJoined | None = None
    refused: Refused | None = None


def own_name(job_id: str) -> str:
    """Return the agent name that an owner uses when it connects to its own endpoint. It does that to find out whether
    another owner answers there.
    """
    return f"owner of {job_id}"


class AgentAdmission:
    """Admits the agents of one job."""

    def __init__(self, launch: LaunchSpec, order: NodesOrder, place: JobPlace, host: str) -> None:
        """Set up the admission of agents. `launch`: the job to run. `order`: the multi-node options, with the owner's
        endpoint. `place`: the job's directory. `host`: the name of the owner's machine.
        """
        self._order = order
        self._context = AdmissionContext(
            version=__version__,
            job=order.job,
            user=user_here(),
            host=host,
            job_id=place.job_id,
            # Leave out the list of nodes, so that the size of the welcome does not grow with the gang.
            spec=replace(launch.spec, nodes=replace(launch.spec.nodes, names=())),
            term=0,
            settings=launch.settings.of_job(),
        )
        self._admitted = KnownAgents()
        #: Node → its topology labels at the time of its agent's admission.
        self._labels: dict[str, tuple[str, ...]] = {}

    def remember(self, history: Iterable[ev.Event]) -> None:
        """Remember the names of the agents that an earlier owner of the job admitted."""
        for event in history:
            if isinstance(event, ev.NodeJoined):
                self._take(event)

    def _take(self, event: ev.NodeJoined) -> None:
        node = event.node
        self._labels[node.name] = node.labels
        self._admitted.put(
            KnownAgent(
                agent=event.agent,
                boot=event.boot,
                name=node.name,
                address=node.address,
                node_rank=node.node_rank,
            )
        )

    def address_of(self, name: str) -> str:
        """Return the address by which peers reach an admitted node."""
        agent = self._admitted.named(name)
        assert agent is not None, f"{name} was let in"
        return agent.address

    def answer(
        self,
        hello: Hello | Foreign,
        address: str,
        term: int,
        is_connected: Callable[[str], bool],
        is_lost: Callable[[str], bool] | None = None,
        labels: Callable[[str], tuple[str, ...]] = lambda name: (),
    ) -> AdmissionAnswer:
        """Answer an agent's hello. An answer without a welcome and without a refusal means that this owner sent the
        hello.

        `address`: the source of the agent's connection. `term`: this owner's term. `is_connected(name)`,
        `is_lost(name)`: whether the node of this name is connected, or lost. `labels(name)`: the topology labels that
        the platform reports for a node.
        """
        if isinstance(hello, Hello) and hello.agent == own_name(self._context.job_id):
            return AdmissionAnswer()
        own = hello.node.address if isinstance(hello, Hello) else ""
        reached = own or self._address(address)
        said = admit(hello, reached, replace(self._context, term=term), self._admitted, is_connected, is_lost)
        if isinstance(said, Refused) or not isinstance(hello, Hello):
            return AdmissionAnswer(refused=said if isinstance(said, Refused) else None)
        near = self._labels.get(said.node) or (*labels(said.node), *hello.node.labels)
        node = replace(hello.node, name=said.node, address=reached, here=self._is_here(address), labels=near)
        joined = ev.NodeJoined(
            node=node, boot=hello.boot, kept_out=hello.kept_out, agent=hello.agent, memory_kill=hello.memory_kill
        )
        self._take(joined)
        return AdmissionAnswer(welcome=said, joined=joined)

    def _address(self, address: str) -> str:
        """Return the address by which peers reach a node: the source address of its connection. For a node on the
        owner's machine return the owner's host name.
        """
        return self._order.host if self._is_here(address) else address

    def _is_here(self, address: str) -> bool:
        """Return whether a connection comes from the owner's machine."""
        return address.startswith("127.") or address in ("::1", self._order.host)
