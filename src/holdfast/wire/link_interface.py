"""The interfaces of the link between a job's owner and its nodes, and the types of their messages.

The owner handles the whole job: gang, journal, explanations, decisions, the report. A node handles one machine:
processes, output, logs, devices, checks. Each works the same whether or not both are in one process.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.model.events import Event
from holdfast.model.gang_protocol import (
    ClosePort,
    Command,
    LookAtRanks,
    MeasurePeer,
    OpenPort,
    PeerMeasured,
    PortOpen,
    RanksSeen,
    Report,
    WantLastWords,
)
from holdfast.wire.node_messages import Moved, ReadFaults, Recorded

#: All types of messages from the owner to a node.
Request = (
    Command
    | RunChecks
    | CollectEvidence
    | RunHooks
    | Moved
    | Recorded
    | ReadFaults
    | LookAtRanks
    | WantLastWords
    | OpenPort
    | MeasurePeer
    | ClosePort
)
#: A node's answer to a query of `owner/node_queries.py`. A lost answer is not sent again.
Seen = RanksSeen | PortOpen | PeerMeasured
#: All types of messages from a node to the owner.
Word = Report | Event | Seen


class NodesLink(Protocol):
    """The owner's end of the link to its nodes, as an interface."""

    def send(self, node: str, request: Request) -> None:
        """Send a request to a node. The request may be lost, so the sender repeats important ones."""
        ...

    def send_all(self, request: Request) -> None:
        """Send a request to every node that it concerns."""
        ...


class OwnerLink(Protocol):
    """A node's end of the link to the owner, as an interface."""

    def report(self, word: Word) -> None:
        """Send a message to the owner. The message may be lost, so the node repeats important ones."""
        ...
