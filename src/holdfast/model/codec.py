"""The one codec: struct ⇄ JSON bytes, for the journal, the wire and the output."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.events import Event
from holdfast.untrusted import json_as

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Any noun or message as JSON bytes. Lone surrogates become U+FFFD, so that text from outside can always be
    written."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(writable(msgspec.to_builtins(value)))


def decode_event(data: bytes) -> Event:
    """Raises `untrusted.Malformed` on anything that is not one event."""
    event: Event = json_as(data, Event)
    return event


def writable(value: Any) -> Any:
    """Lists, dicts, texts and numbers with every lone surrogate replaced, so that the text of others can be encoded."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(key): writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [writable(item) for item in value]
    return value
