"""The messages of a starter (a program that starts the job's agents) to the owner during the job, one line per
event.
"""

from __future__ import annotations

import os

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

#: Maximum length of a line in bytes. Linux never splits a write of this size to a pipe.
_MOST_BYTES = 4096
_WORDS, _NODES = 1000, 64


class StarterReport(Noun, frozen=True, kw_only=True):
    """One event that a starter reports."""

    #: The event as a clause of a message to the user.
    words: str
    #: A command that the user can try after this event.
    hint: str = ""
    #: The names of the nodes that will get no agent.
    nodes: tuple[str, ...] = ()
    #: The names of the nodes whose agent has ended and is started again.
    anew: tuple[str, ...] = ()
    #: Whether the platform has removed these nodes from the job. The command in `hint` then shows that.
    lost: bool = False
    #: The number of further nodes that will get no agent and are not listed in `nodes`.
    more: int = 0


class StarterPipe:
    """A pipe from a starter to the owner. The guard creates it, so a restarted starter or owner uses the same pipe."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def say(self, said: StarterReport) -> None:
        """Send a report to the owner, or drop it if the pipe is full."""
        nodes = said.nodes[:_NODES]
        cut = StarterReport(
            words=said.words[:_WORDS],
            hint=said.hint[:_WORDS],
            nodes=nodes,
            anew=said.anew[:_NODES],
            lost=said.lost,
            more=len(said.nodes) - len(nodes),
        )
        line = msgspec.json.encode(cut) + b"\n"
        try:
            os.write(self._writer, line if len(line) <= _MOST_BYTES else b"")
        except BlockingIOError:
            pass  # the pipe is full, because the owner does not read it, so drop the report


def parse_starter_reports(data: bytes) -> tuple[StarterReport, ...]:
    """Parse the reports in a block of bytes from the pipe. Skip malformed lines."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json_as(line, StarterReport, most_bytes=_MOST_BYTES))
        except Malformed:
            continue
    return tuple(found)


class FirstToken:
    """A token in a pipe of the guard. Only the first process of the starter gets it; restarted ones do not."""

    def __init__(self) -> None:
        self._reader, token = os.pipe()
        os.write(token, b"+")
        os.close(token)

    def first(self) -> bool:
        """Try to take the token. Return whether this process is the first of its starter."""
        return bool(os.read(self._reader, 1))
