"""The one codec: struct ⇄ JSON bytes, for the journal, the wire and the output."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from holdfast.model.events import Event

_encoder = msgspec.json.Encoder()


@functools.cache
def _events() -> msgspec.json.Decoder[Event]:
    # Every type of every event is looked at here: a start, which only writes, must not pay for it.
    return msgspec.json.Decoder(Event)


def encode(value: Any) -> bytes:
    """Any noun or message as JSON bytes. Lone surrogates become U+FFFD: what was read must always be writable."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_writable(msgspec.to_builtins(value)))


def decode_event(data: bytes) -> Event:
    """Raises `msgspec.ValidationError` on anything that is not one event."""
    return _events().decode(data)


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    return value
