"""The users whose commands are connected to an owner: their open questions, and the logs that they follow."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.owner.nodes.operator_lines import LogLine, RanksLine
from holdfast.wire.node_messages import Answered, VerbDone


class OperatorSession(Protocol):
    """A user's connection."""

    def send(self, message: Answered) -> bool: ...

    def dismiss(self, message: Answered) -> None: ...


class OpenQuestion(msgspec.Struct):
    """A question that one or more nodes still have to answer."""

    person: OperatorSession
    nodes: set[str]
    tag: int
    #: The request, if the question is about a log.
    line: LogLine | None = None
    as_json: bool = False
    said: dict[str, VerbDone] = {}


class HeldQuestion(msgspec.Struct):
    """A question about an attempt that has not begun, or for a node that has lost its connection."""

    person: OperatorSession
    tag: int
    line: LogLine | RanksLine


class LogFollowers:
    """The logs that users follow and have not read to their ends."""

    def __init__(self) -> None:
        #: Pairs of user and tag; tag 0: the user is about to ask for the logs of an attempt.
        self._reading: set[tuple[int, int]] = set()

    @property
    def some(self) -> bool:
        return bool(self._reading)

    def turn(self, person: OperatorSession, *, wait: bool) -> None:
        """Note that the user has got the list of an attempt's ranks."""
        self.left(person)
        if wait:
            self._reading.add((id(person), 0))

    def read_on(self, person: OperatorSession, tag: int) -> None:
        """Note that the user's question is at the node."""
        self._reading.add((id(person), tag))

    def read(self, person: OperatorSession, tag: int) -> None:
        """Note that the user has read a log to its end, or asks for it again."""
        self._reading -= {(id(person), tag), (id(person), 0)}

    def left(self, person: OperatorSession) -> None:
        self._reading = {each for each in self._reading if each[0] != id(person)}
