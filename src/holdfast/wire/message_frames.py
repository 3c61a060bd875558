"""The wire format of messages: a length of 4 bytes, then one tagged struct in MessagePack.

A frame has at most 1 MiB. A longer message is split into several frames, for example the evidence of a node with very
many workers. The highest bit of the length means that another frame of the message follows. A message that is too long
or of an unexpected type ends the connection. The size of a message to a node does not grow with the gang, because it
has only the placements of the node's workers. This module does no input or output.
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

#: The types of messages from an agent. The gang protocol's `Report` is sent inside a `Told`, and the reader unpacks it.
FromAgent = Hello | Told | Bye | NodeAnswer | Event | Seen
#: The types of messages from an operator, which is a user's command with a connection to the owner.
FromOperator = Asked
#: The types of messages from the owner to agents and operators.
FromOwner = Welcome | Refused | Finished | Requeued | Answered | Question | Request
Sent = FromAgent | FromOperator | FromOwner | Word

#: Maximum length of a frame's body, in bytes.
LONGEST_BYTES = 1 << 20
#: Maximum length of a message, in bytes. It suffices for a node with a thousand workers, each with the largest
#: evidence.
LONGEST_MESSAGE_BYTES = 16 << 20
_HEAD = 4
_MORE = 1 << 31

_encoder = msgspec.msgpack.Encoder()


class TooLong(ValueError):
    """Raised if a message to be sent is too long. That is a bug of holdfast, because the parts of messages are
    bounded.
    """


def frame(message: Sent, now: float) -> bytes:
    """Encode a message that is sent at `now` (seconds on this process's clock).

    Times are sent as ages. Raises `TooLong`.
    """
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
    """Decodes one peer's messages from chunks of bytes of any size."""

    __slots__ = ("_bytes", "_first", "_kind", "_parts")

    def __init__(self, kind: Any) -> None:
        """kind: the type (or union of types) of the messages that the peer may send."""
        self._bytes = bytearray()
        self._kind = kind
        self._first = True
        #: The received frames of a message whose last frame has not come.
        self._parts = bytearray()

    @property
    def held(self) -> int:
        """The number of stored bytes that belong to an incomplete message."""
        return len(self._bytes) + len(self._parts)

    def take(self, data: bytes, now: float) -> Iterator[Any]:
        """Add received bytes. Yield each complete message in order.

        now: seconds on this process's clock. Ages in the messages become times on this clock.
        If a frame is too long or contains no message, yields the messages before it and then raises `Malformed`.
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
            # Another version's hello (first message) may have other fields. `Foreign` has only the fields that all
            # versions have.
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
            # Python removes the start of a bytearray without a copy of the rest.
            del held[:end]
            if more:
                parts += body
                continue
            if parts:
                body = bytes(parts) + body
                parts.clear()
            yield body
