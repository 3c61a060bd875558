"""Those whose commands are connected to an owner: what they have asked, and what they still read."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.owner.nodes.operator_lines import LogLine, RanksLine
from holdfast.wire.node_messages import Answered, VerbDone


class OperatorSession(Protocol):
    """A person's connection."""

    def send(self, message: Answered) -> bool: ...

    def dismiss(self, message: Answered) -> None: ...


class OpenQuestion(msgspec.Struct):
    """A question that a node, or several, still have to answer."""

    person: OperatorSession
    nodes: set[str]
    tag: int
    #: Where it is about a log.
    line: LogLine | None = None
    as_json: bool = False
    said: dict[str, VerbDone] = {}


class HeldQuestion(msgspec.Struct):
    """A question about an attempt that has not begun, or for a node that has lost its connection."""

    person: OperatorSession
    tag: int
    line: LogLine | RanksLine


class LogFollowers:
    """Logs that people follow, and have not read to their ends."""

    def __init__(self) -> None:
        self._reading: set[tuple[int, int]] = set()
        """(person, tag); tag 0: it is about to ask for the logs of an attempt."""

    @property
    def some(self) -> bool:
        return bool(self._reading)

    def turn(self, person: OperatorSession, *, wait: bool) -> None:
        """It has learned which ranks an attempt has."""
        self.left(person)
        if wait:
            self._reading.add((id(person), 0))

    def read_on(self, person: OperatorSession, tag: int) -> None:
        """Its question is at the node."""
        self._reading.add((id(person), tag))

    def read(self, person: OperatorSession, tag: int) -> None:
        """That log is read to its end, or asked for anew."""
        self._reading -= {(id(person), tag), (id(person), 0)}

    def left(self, person: OperatorSession) -> None:
        self._reading = {each for each in self._reading if each[0] != id(person)}
