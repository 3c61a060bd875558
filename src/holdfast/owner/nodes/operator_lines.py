"""What a person's command may ask of a job's owner from another node: one line of JSON each."""

from __future__ import annotations

import msgspec

from holdfast.wire.control_socket import StopLine
from holdfast.wire.node_messages import LogFrom, Verb

MOST_WORDS = 64
MOST_LINE_BYTES = 64 * 1024


class LogLine(msgspec.Struct, frozen=True, tag="log", tag_field="type"):
    """Read in a rank's logs, where they lie. With `wait` the answer comes as soon as there is something."""

    rank: int
    streams: tuple[LogFrom, ...]
    #: 0: the last one.
    attempt: int = 0
    wait: bool = False


class RanksLine(msgspec.Struct, frozen=True, tag="ranks", tag_field="type"):
    """Which ranks an attempt has, and where. With `wait` the answer comes as soon as the attempt has begun."""

    #: 0: the last one.
    attempt: int = 0
    wait: bool = False


class VerbLine(msgspec.Struct, frozen=True, tag="verb", tag_field="type"):
    """Run one of our own commands: `show` beside the owner, the others on the named node."""

    verb: Verb
    words: tuple[str, ...] = ()
    #: Empty, for `devices`: every node.
    node: str = ""


OperatorLine = StopLine | LogLine | RanksLine | VerbLine
