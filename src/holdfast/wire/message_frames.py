"""How a message looks on the wire: a length of 4 bytes, then one tagged struct in MessagePack. No input or output here.

A frame has at most 1 MiB. A longer message (the evidence of a node with very many workers, a report of a large job)
goes in several: the highest bit of the length says that more follow. What is longer still, or no message of its
union, ends the connection. What grows with the gang is not sent to each node: it gets its own seats, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.model.codec import writable
from holdfast.model.events import Event
from holdfast.model.gang_protocol import Report
from holdfast.untrusted import Malformed, msgpack_as
from holdfast.wire.link_interface import Request, Seen, Word
from holdfast.wire.message_ages import aged, dated
from holdfast.wire.node_messages import (
    Answered,
    Asked,
    Bye,
    Finished,
    Foreign,
    Hello,
    NodeAnswer,
    Question,
    Refused,
    Requeued,
    Told,
    Welcome,
)

#: What an agent may say. The gang protocol's `Report` goes as `Told`, and arrives as `Report`.
FromAgent = Hello | Told | Bye | NodeAnswer | Event | Seen
#: What a person's command may say.
FromOperator = Asked
#: What the owner may say.
FromOwner = Welcome | Refused | Finished | Requeued | Answered | Question | Request
Sent = FromAgent | FromOperator | FromOwner | Word

#: Of a frame.
LONGEST_BYTES = 1 << 20
#: A thousand workers of one node, each with all that its evidence may have.
LONGEST_MESSAGE_BYTES = 16 << 20
_HEAD = 4
_MORE = 1 << 31

_encoder = msgspec.msgpack.Encoder()


class TooLong(ValueError):
    """A message of ours is longer than any may be: what it is made of is bounded elsewhere, and was not."""


def frame(message: Sent, now: float) -> bytes:
    """One message as it is sent at `now` (seconds on this process' clock), its moments as ages. Raises `TooLong`."""
    travels = Told(report=message) if isinstance(message, Report) else aged(message, now)
    try:
        body = _encoder.encode(travels)
    except UnicodeEncodeError:
        body = _encoder.encode(writable(msgspec.to_builtins(travels)))
    if len(body) <= LONGEST_BYTES:
        return len(body).to_bytes(_HEAD, "big") + body
    if len(body) > LONGEST_MESSAGE_BYTES:
        raise TooLong(f"{type(message).__name__} has {len(body)} bytes; a message has at most {LONGEST_MESSAGE_BYTES}")
    return b"".join(_frames(body))


def _frames(body: bytes) -> Iterator[bytes]:
    last = (len(body) - 1) // LONGEST_BYTES * LONGEST_BYTES
    for at in range(0, last, LONGEST_BYTES):
        yield (_MORE | LONGEST_BYTES).to_bytes(_HEAD, "big")
        yield body[at : at + LONGEST_BYTES]
    yield (len(body) - last).to_bytes(_HEAD, "big")
    yield body[last:]


class FrameReader:
    """The messages of one direction of one connection, from bytes that come in any pieces."""

    __slots__ = ("_bytes", "_first", "_kind", "_parts")

    def __init__(self, kind: Any) -> None:
        """`kind`: what the peer may say, a type or a union."""
        self._bytes = bytearray()
        self._kind = kind
        self._first = True
        self._parts = bytearray()
        """The frames of a message of which more follow."""

    @property
    def held(self) -> int:
        """Bytes of a message that is not whole yet."""
        return len(self._bytes) + len(self._parts)

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
            self._parts.clear()
            raise

    def _message(self, body: bytes) -> Any:
        try:
            return msgpack_as(body, self._kind, most_bytes=LONGEST_MESSAGE_BYTES)
        except Malformed:
            if not self._first:
                raise
            # Another version's hello may have other fields; what it has in common says which one it is.
            return msgpack_as(body, Foreign, most_bytes=LONGEST_MESSAGE_BYTES)

    def _bodies(self) -> Iterator[bytes]:
        held, parts = self._bytes, self._parts
        while len(held) >= _HEAD:
            length = int.from_bytes(held[:_HEAD], "big")
            more, length = bool(length & _MORE), length & ~_MORE
            if length > LONGEST_BYTES or (more and length < LONGEST_BYTES):
                raise Malformed(f"a frame of {length} bytes was announced; at most {LONGEST_BYTES} were expected")
            if len(parts) + length > LONGEST_MESSAGE_BYTES:
                raise Malformed(f"a message has more than the {LONGEST_MESSAGE_BYTES} bytes that were expected")
            if len(held) < (end := _HEAD + length):
                return
            body = bytes(held[_HEAD:end])
            # A bytearray gives its beginning away without moving the rest.
            del held[:end]
            if more:
                parts += body
                continue
            if parts:
                body = bytes(parts) + body
                parts.clear()
            yield body
