"""Finds out whether another owner of the job answers at the endpoint. The question only arises if the endpoint is not
an address of this machine.

Behind NAT, or with a Service's address, the owner reaches itself or nothing. If another owner answers, two nodes were
configured to host the owner, and the job's nodes would split between the two owners.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.node.agent.local_node import node_here, user_here
from holdfast.owner.nodes.agent_admission import own_name
from holdfast.version import __version__
from holdfast.wire.job_key import Key
from holdfast.wire.node_messages import PROTOCOL, Hello, Refused
from holdfast.wire.owner_dialler import Dialler
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.tls_channel import ChannelEndKind

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.reactor import News, Reactor
    from holdfast.wire.tls_channel import ChannelEnd

#: The failures of a connection after which `RivalOwner` connects again, because an owner may answer later.
_GO_ON = (ChannelEndKind.UNREACHED, ChannelEndKind.UNRESOLVED, ChannelEndKind.BROKEN, ChannelEndKind.LATE)


class RivalOwner:
    """Connects to the endpoint until an owner answers, or until the time limit for the nodes to join has passed.

    `order`: the endpoint and the job's key. `job_id`: this owner's job.
    """

    def __init__(self, launch: LaunchSpec, order: NodesOrder, job_id: str, reactor: Reactor) -> None:
        self._launch = launch
        self._order = order
        self._job_id = job_id
        mine = Credentials(Key(order.key, Path(order.key_from)), Identity.AGENT)
        self._dialler = Dialler(reactor, order.host, order.port, mine, self._hello, self._on_message, self._lost)
        self._until = reactor.now() + launch.spec.nodes.join_s

    def _hello(self, mine: str, theirs: str) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            job=self._order.job,
            agent=own_name(self._job_id),
            boot=0,
            user=user_here(),
            node=node_here(self._launch, self._order),
            plan=self._launch.spec.nodes,
            dialled=theirs,
            hosts=self._order.hosts_why,
        )

    def _on_message(self, message: Any, now: float) -> News:
        self._dialler.close()
        if not isinstance(message, Refused) or message.code != 2:
            return None
        request = StopRequest(
            reason=message.reason,
            solution=message.hint,
            source=StopSource.SUPERVISOR,
            code=message.code,
            at=now,
        )
        return [ev.StopRequested(request=request)]

    def _lost(self, end: ChannelEnd, now: float) -> News:
        # Any other end means that no other owner of this job answers: the peer is this owner, or belongs to no owner of
        # this job.
        if end.why not in _GO_ON or now > self._until:
            self._dialler.close()
        return None
