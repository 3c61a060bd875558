"""The codec between structs and JSON bytes. The journal, the connections and the printed JSON all use it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.events import Event
from holdfast.untrusted import json_as

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Return a struct as JSON bytes.

    In texts, lone surrogates become U+FFFD, because no encoding allows them.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(writable(msgspec.to_builtins(value)))


def decode_event(data: bytes) -> Event:
    """Return the event in these JSON bytes. Raises `untrusted.Malformed` if they contain no event."""
    event: Event = json_as(data, Event)
    return event


def writable(value: Any) -> Any:
    """Return a copy of lists, dicts, texts and numbers without lone surrogates, which no encoding allows."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(key): writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [writable(item) for item in value]
    return value
