"""The base of every noun here: a frozen, keyword-only, tagged struct.

One codec serves the journal, the wire and the JSON output, so every message is a msgspec struct with a tag. New fields
get defaults; a field's meaning never changes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

#: Marks a field as a moment.
MONOTONIC = {"clock": "monotonic"}
#: A moment: seconds on the clock of the process that holds it. On the wire it is an age (`holdfast.wire.message_ages`).
At = Annotated[float, msgspec.Meta(extra=MONOTONIC)]


def _tag(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Noun(msgspec.Struct, frozen=True, kw_only=True):
    """A plain value. It is in no union, and so it has no tag."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=_tag):
    """A member of a union (an event, an action, a command), with a tag that shows which one it is."""
