"""How a message looks on the wire: a length of 4 bytes, then one tagged struct in MessagePack. No input or output here.

A frame has at most 1 MiB; a longer one, or one that is no message of its union, ends the connection. What grows with
the gang is not sent whole: an agent gets its own seats, and a node's evidence has at most 16 KiB a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.model.codec import writable
from holdfast.model.commands import Report
from holdfast.model.events import Event
from holdfast.model.looks import RanksSeen
from holdfast.untrusted import Malformed, msgpack_as
from holdfast.wire.ages import aged, dated
from holdfast.wire.link import Request, Word
from holdfast.wire.messages import (
    Answered,
    Asked,
    Bye,
    Finished,
    Foreign,
    Hello,
    NodeAnswer,
    Question,
    Refused,
    Told,
    Welcome,
)

FromAgent = Hello | Told | Bye | NodeAnswer | Event | RanksSeen
"""What an agent may say. The gang protocol's `Report` goes as `Told`, and arrives as `Report`."""
FromOperator = Asked
"""What a person's command may say."""
FromOwner = Welcome | Refused | Finished | Answered | Question | Request
"""What the owner may say."""
Sent = FromAgent | FromOperator | FromOwner | Word

LONGEST_BYTES = 1 << 20
_HEAD = 4

_encoder = msgspec.msgpack.Encoder()


class TooLong(ValueError):
    """A message of ours does not fit into a frame: whoever sends it must send it in parts."""


def frame(message: Sent, now: float) -> bytes:
    """One message as it is sent at `now` (seconds on this process' clock), its moments as ages. Raises `TooLong`."""
    travels = Told(report=message) if isinstance(message, Report) else aged(message, now)
    try:
        body = _encoder.encode(travels)
    except UnicodeEncodeError:
        body = _encoder.encode(writable(msgspec.to_builtins(travels)))
    if len(body) > LONGEST_BYTES:
        raise TooLong(f"{type(message).__name__} has {len(body)} bytes; a frame has at most {LONGEST_BYTES}")
    return len(body).to_bytes(_HEAD, "big") + body


class Inbox:
    """The messages of one direction of one connection, from bytes that come in any pieces."""

    __slots__ = ("_bytes", "_first", "_kind")

    def __init__(self, kind: Any) -> None:
        """`kind`: what the peer may say, a type or a union."""
        self._bytes = bytearray()
        self._kind = kind
        self._first = True

    def take(self, data: bytes, now: float) -> Iterator[Any]:
        """Each message that is whole now, in order, with moments on this process' clock (`now`: seconds).

        Raises `Malformed` at the first frame that is too long or no message; those before it have been given by then.
        """
        held = self._bytes
        held += data
        try:
            for body in self._bodies():
                message = self._message(body)
                self._first = False
                yield message.report if isinstance(message, Told) else dated(message, now)
        except Malformed:
            held.clear()
            raise

    def _message(self, body: bytes) -> Any:
        try:
            return msgpack_as(body, self._kind, most_bytes=LONGEST_BYTES)
        except Malformed:
            if not self._first:
                raise
            # Another version's hello may have other fields; what it has in common says which one it is.
            return msgpack_as(body, Foreign, most_bytes=LONGEST_BYTES)

    def _bodies(self) -> Iterator[bytes]:
        held = self._bytes
        while len(held) >= _HEAD:
            length = int.from_bytes(held[:_HEAD], "big")
            if length > LONGEST_BYTES:
                raise Malformed(f"a frame of {length} bytes was announced; at most {LONGEST_BYTES} were expected")
            if len(held) < (end := _HEAD + length):
                return
            body = bytes(held[_HEAD:end])
            # A bytearray gives its beginning away without moving the rest.
            del held[:end]
            yield body
