"""The only codec between structs and JSON bytes. The journal, the connections and the output use it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.events import Event
from holdfast.untrusted import json_as

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Return a struct as JSON bytes. Lone surrogates become U+FFFD, so that any text can be encoded."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(writable(msgspec.to_builtins(value)))


def decode_event(data: bytes) -> Event:
    """Return the event in these JSON bytes. Raises `untrusted.Malformed` on anything else."""
    event: Event = json_as(data, Event)
    return event


def writable(value: Any) -> Any:
    """Return lists, dicts, texts and numbers with every lone surrogate replaced, so that they can be encoded."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(key): writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [writable(item) for item in value]
    return value
