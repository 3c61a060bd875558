"""An agent's connection to its owner. It introduces the node, and passes each message to its handler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.errors import HoldfastError
from holdfast.node.agent.local_node import node_here, user_here
from holdfast.node.devices.visible_devices import kept_out_here
from holdfast.record.owner_address import OwnerAddress, write_owner_address
from holdfast.version import __version__
from holdfast.wire.connection_troubles import FINAL, trouble
from holdfast.wire.job_key import Key
from holdfast.wire.node_messages import (
    PROTOCOL,
    Finished,
    ForgetLog,
    Hello,
    Question,
    ReadLog,
    Refused,
    Requeued,
    RunVerb,
    Welcome,
)
from holdfast.wire.owner_dialler import LONGEST_S, Dialler
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.socket_options import written

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.model.evidence import MemoryKill
    from holdfast.model.faults import DeviceStanding
    from holdfast.reactor import News, Reactor
    from holdfast.wire.link_interface import Request
    from holdfast.wire.message_frames import Sent
    from holdfast.wire.tls_channel import ChannelEnd


#: The longest pause between two connection attempts while workers live, in seconds.
HURRY_S = 0.5


class OwnerMessageHandler(Protocol):
    """Handles the messages that the owner sends."""

    def welcomed(self, welcome: Welcome, now: float) -> None: ...

    def refused(self, refused: Refused, now: float) -> None: ...

    def asked(self, request: Request, now: float) -> None: ...

    def questioned(self, question: Question) -> None: ...

    def finished(self, finished: Finished, now: float) -> None: ...

    def requeued(self, now: float) -> None: ...


class AgentIdentity(msgspec.Struct, frozen=True):
    """Identifies an agent to its owner."""

    #: The id of the agent's guard process.
    guard_id: str
    #: The agent's start number, higher than that of any earlier agent of this node.
    boot: int
    #: The OOM kill that ended the previous agent, or None.
    memory_kill: MemoryKill | None = None


class OwnerConnection:
    """The agent's connection to its owner. It is restored after each break.

    `order`: how this node takes part in the job. `hears` handles the owner's messages. `host`, `port`: the owner's
    address.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        order: NodesOrder,
        reactor: Reactor,
        hears: OwnerMessageHandler,
        *,
        agent: AgentIdentity,
        host: str,
        port: int,
    ) -> None:
        self.node = node_here(launch, order)
        #: The owner's address as the user typed it.
        self.place = written(order.host, port)
        #: Why there is no connection; empty until a connection attempt has failed.
        self.trouble = ""
        #: A remedy for `trouble` that the user can try.
        self.hint = ""
        self._launch = launch
        self._order = order
        self._reactor = reactor
        self._hears = hears
        self.agent = agent
        self._host, self._port = host, port
        self._key = Key(order.key, Path(order.key_from))
        self._in = False
        #: The highest attempt number that this agent has seen.
        self.attempt = 0
        self._dialler = Dialler(
            reactor,
            host,
            port,
            Credentials(self._key, Identity.AGENT),
            self._hello,
            self._on_message,
            self._lost,
        )
        self._dialler.lease_s = launch.spec.timers.lease_s

    @property
    def connected(self) -> bool:
        """Return whether the owner has admitted this agent on the present connection."""
        return self._in and self._dialler.connected

    def note(self, directory: Path, welcome: Welcome) -> None:
        """Write the owner's address to a file, so that commands on this machine can find the job."""
        key = self._order.key_from
        said = OwnerAddress(
            job_id=welcome.job_id,
            name=welcome.spec.name,
            node=welcome.node,
            machine=os.uname().nodename,
            owner=welcome.owner,
            host=self._host,
            port=self._port,
            began=self._reactor.now(),
            key=key if Path(key).is_absolute() else "",
        )
        try:
            write_owner_address(directory, said)
        except OSError:
            # Ignore the error: the job runs, but commands on this node do not find it.
            pass

    def hurry(self, on: bool) -> None:
        """Connect more often if `on` is true, because workers live and their lease ends soon without the owner."""
        self._dialler.longest_s = HURRY_S if on else LONGEST_S

    def send(self, message: Sent) -> bool:
        return self._dialler.send(message)

    @property
    def fd(self) -> int:
        """Return the connection's descriptor, or -1 if there is none."""
        return self._dialler.fd

    def close(self) -> None:
        self._dialler.close()

    def _hello(self, mine: str, theirs: str) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            job=self._order.job,
            agent=self.agent.guard_id,
            boot=self.agent.boot,
            user=user_here(),
            node=self.node,
            plan=self._launch.spec.nodes,
            dialled=theirs,
            attempt=self.attempt,
            kept_out=self._kept_out(),
            memory_kill=self.agent.memory_kill,
        )

    def _kept_out(self) -> tuple[DeviceStanding, ...]:
        try:
            return kept_out_here(self._launch.home, self.node, self._reactor.now())
        except HoldfastError:
            return ()  # return no devices, because the node's fault sources read the same log and report the error

    def _on_message(self, message: Any, now: float) -> News:
        match message:
            case Welcome():
                self._in, self.trouble = True, ""
                self._hears.welcomed(message, now)
            case Refused():
                self._hears.refused(message, now)
            case Finished():
                self._hears.finished(message, now)
            case Requeued():
                self._hears.requeued(now)
            case ReadLog() | ForgetLog() | RunVerb():
                self._hears.questioned(message)
            case _ if self._in:
                self._hears.asked(message, now)
        return None

    def _lost(self, end: ChannelEnd, now: float) -> News:
        self._in = False
        said = trouble(end, self._order.host, self._port, self._key)
        self.trouble, self.hint = said.message, said.hint or ""
        if end.why in FINAL:
            self._hears.refused(Refused(reason=said.message, hint=said.hint or "", code=said.exit_status), now)
        return None
