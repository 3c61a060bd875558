"""Whom the owner lets in, under which name, or why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast import __version__
from holdfast.loop.nodes.here import user_here
from holdfast.model import events as ev
from holdfast.wire.messages import PROTOCOL, Hello, Refused, Welcome

if TYPE_CHECKING:
    from holdfast.loop.order import Launch, NodesOrder
    from holdfast.record.places import JobPlace


class Answer(msgspec.Struct, frozen=True):
    """Either a welcome, and what the gang learns of it, or a refusal."""

    welcome: Welcome | None = None
    joined: ev.NodeJoined | None = None
    refused: Refused | None = None


class LettingIn:
    """One job's door for agents."""

    def __init__(self, launch: Launch, order: NodesOrder, place: JobPlace, host: str) -> None:
        """`host`: the name of the owner's machine."""
        self._spec = launch.spec
        self._order = order
        self._job_id = place.job_id
        self._host = host
        self._names: dict[str, str] = {}
        """Agent → what its node is called here."""
        self._known: dict[str, ev.NodeJoined] = {}

    def remember(self, history: Iterable[ev.Event]) -> None:
        """Those that an owner of before has let in keep their names."""
        for event in history:
            if isinstance(event, ev.NodeJoined):
                self._take(event)

    def _take(self, event: ev.NodeJoined) -> None:
        self._names[event.agent] = event.node.name
        self._known[event.node.name] = event

    def address_of(self, name: str) -> str:
        """Where peers reach a node that was let in."""
        return self._known[name].node.address

    def answer(self, hello: Hello, address: str, term: int, is_connected: Callable[[str], bool]) -> Answer:
        """`address`: where the agent's connection comes from. `term`: of this owner."""
        refused = self._refusal(hello)
        if refused is not None:
            return Answer(refused=refused)
        reached = hello.node.address or self._address(address)
        name = self._name(hello, reached, is_connected)
        node = replace(hello.node, name=name, address=reached, here=_is_here(address))
        joined = ev.NodeJoined(node=node, boot=hello.boot, kept_out=hello.kept_out, agent=hello.agent)
        self._take(joined)
        welcome = Welcome(job_id=self._job_id, node=name, spec=self._spec, term=term, owner=self._host)
        return Answer(welcome=welcome, joined=joined)

    def _name(self, hello: Hello, address: str, is_connected: Callable[[str], bool]) -> str:
        """What the machine calls itself; with its address, and then a number, where another node has that name.

        A machine that was started anew, or the run on it, gets the name that it had.
        """
        if (known := self._names.get(hello.agent)) is not None:
            return known
        wanted, number = hello.node.name, 2
        name = wanted
        while (before := self._known.get(name)) is not None:
            if before.node.address == address and not is_connected(name):
                break
            name = f"{wanted}@{address}" if name == wanted else f"{wanted}@{address}#{number}"
            number += name.endswith(f"#{number}")
        return name

    def _address(self, address: str) -> str:
        """Where peers reach a node: where it comes from; beside the owner, as the others dial the owner."""
        return self._order.host if _is_here(address) else address

    def _refusal(self, hello: Hello) -> Refused | None:
        plan = self._spec.nodes
        if hello.protocol != PROTOCOL:
            return Refused(
                reason=f"the owner on {self._host} runs holdfast {__version__} (protocol {PROTOCOL}), this node "
                f"{hello.version} (protocol {hello.protocol}): they do not work together",
                hint=f"pip install holdfast=={__version__}",
                code=2,
            )
        if hello.job != self._order.job:
            return Refused(
                reason=f"the owner on {self._host} runs another job: {self._order.job}; this node was started for "
                f"{hello.job}",
                hint="holdfast run --rdzv-endpoint HOST:OTHERPORT …, or the same --rdzv-id on every node",
                code=2,
            )
        if hello.user != (user := user_here()):
            return Refused(
                reason=f"the owner on {self._host} belongs to user {user}, and this node runs as user {hello.user}: "
                "all nodes of a job have one user",
                hint=f"sudo -u {user} holdfast run …, or another --rdzv-endpoint",
                code=2,
            )
        mine, theirs = (plan.least, plan.most), (hello.plan.least, hello.plan.most)
        if mine != theirs:
            return Refused(
                reason=f"the owner on {self._host} was started with --nnodes {_shown(mine)}, this node with "
                f"--nnodes {_shown(theirs)}: expected the same on every node",
                hint=f"holdfast run --nnodes {_shown(mine)} …",
                code=2,
            )
        return None


def _is_here(address: str) -> bool:
    """Whether a connection comes from the owner's own machine."""
    return address.startswith("127.") or address == "::1"


def _shown(nodes: tuple[int, int]) -> str:
    return str(nodes[0]) if nodes[0] == nodes[1] else f"{nodes[0]}:{nodes[1]}"
