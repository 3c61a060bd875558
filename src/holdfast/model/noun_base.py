"""The base classes of all structs of `holdfast.model`: frozen and keyword-only.

The journal, the connections and the JSON output use one codec, so every message is a msgspec struct with a tag. Old
files must stay readable, so a new field has a default, and the meaning of a field never changes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

#: Marks a field as a time on the monotonic clock of the process that has the struct.
MONOTONIC = {"clock": "monotonic"}
#: A time in seconds, on the clock of the process that has the struct. In a message it is an age
#: (`holdfast.wire.message_ages`).
At = Annotated[float, msgspec.Meta(extra=MONOTONIC)]


def _tag(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Noun(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of plain values. They are in no union, so they need no tag."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=_tag):
    """The base class of messages in a union (events, actions, commands). The tag in the JSON names the class."""
