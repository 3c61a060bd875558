"""The two ends of the link between the owner of a job and its nodes, and what goes over it.

The owner judges the job: gang, journal, explaining, deciding, the report. A node looks after one machine: processes,
output, logs, devices, checks. Neither knows whether the other is in the same process.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.model.events import Event
from holdfast.model.gang_protocol import Command, Report
from holdfast.model.hang_messages import LookAtRanks, RanksSeen, WantLastWords
from holdfast.model.link_check_messages import ClosePort, MeasurePeer, OpenPort, PeerMeasured, PortOpen
from holdfast.wire.node_messages import Moved, ReadFaults, Recorded

#: What the owner sends to a node.
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
#: A node's answer to a question to all nodes, for `owner/node_queries.py`, which has asked. A lost one is not repeated.
Seen = RanksSeen | PortOpen | PeerMeasured
#: What a node sends to the owner.
Word = Report | Event | Seen


class NodesLink(Protocol):
    """The owner's end."""

    def send(self, node: str, request: Request) -> None:
        """Send a node a request. It may be lost; important requests are repeated."""
        ...

    def send_all(self, request: Request) -> None:
        """Send it to every node that it concerns."""
        ...


class OwnerLink(Protocol):
    """A node's end."""

    def report(self, word: Word) -> None:
        """Send a message to the owner. It may be lost; important messages are repeated."""
        ...
