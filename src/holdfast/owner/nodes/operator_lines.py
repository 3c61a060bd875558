"""The requests that a user's command sends to a job's owner, from any node. Each is one line of JSON."""

from __future__ import annotations

import msgspec

from holdfast.wire.control_socket import StopLine
from holdfast.wire.node_messages import LogFrom, Verb

MOST_WORDS = 64
MOST_LINE_BYTES = 64 * 1024


class LogLine(msgspec.Struct, frozen=True, tag="log", tag_field="type"):
    """Read a rank's logs on its node. If `wait` is set, the answer comes when the log has new output."""

    rank: int
    streams: tuple[LogFrom, ...]
    #: The number of the attempt; 0: the last one.
    attempt: int = 0
    wait: bool = False


class RanksLine(msgspec.Struct, frozen=True, tag="ranks", tag_field="type"):
    """List the ranks of an attempt and their nodes. If `wait` is set, the answer comes when the attempt has begun."""

    #: The number of the attempt; 0: the last one.
    attempt: int = 0
    wait: bool = False


class VerbLine(msgspec.Struct, frozen=True, tag="verb", tag_field="type"):
    """Run a holdfast command: `show` on the owner's machine, the others on the named node."""

    verb: Verb
    words: tuple[str, ...] = ()
    #: The name of the node that runs the command. For `devices`, an empty name means every node.
    node: str = ""


OperatorLine = StopLine | LogLine | RanksLine | VerbLine
