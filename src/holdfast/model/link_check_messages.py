"""The messages between owner and nodes while the links between nodes are measured, in the checks before an attempt."""

from __future__ import annotations

from holdfast.model.noun_base import Message

TOKEN_BYTES = 16


class OpenPort(Message, frozen=True, kw_only=True):
    """Listen for peers that show this token, until `ClosePort`; answer with `PortOpen`."""

    attempt: int
    round: int
    #: The token, in hexadecimal.
    token: str
    #: The number of bytes that a peer sends and gets back.
    size: int
    #: Seconds that the exchange with one peer may take.
    wait_s: float


class PortOpen(Message, frozen=True, kw_only=True):
    """The node listens on `port`; `trouble`: why it cannot listen."""

    attempt: int
    round: int
    port: int = 0
    trouble: str = ""


class MeasurePeer(Message, frozen=True, kw_only=True):
    """Connect to a peer's port and exchange data with it; answer with `PeerMeasured` of the same number."""

    attempt: int
    round: int
    number: int
    address: str
    port: int
    token: str
    size: int
    wait_s: float


class PeerMeasured(Message, frozen=True, kw_only=True):
    """The times of an exchange with a peer; `trouble`: why it failed."""

    attempt: int
    round: int
    number: int
    #: Seconds for a round trip of one byte: the shortest of several.
    round_trip_s: float = 0.0
    #: Seconds for a round trip of `size` bytes.
    exchange_s: float = 0.0
    trouble: str = ""


class ClosePort(Message, frozen=True, kw_only=True):
    """Stop listening: the links are measured."""

    attempt: int
    round: int
