"""Reports from a starter to the owner while the job runs: one line for each event that concerns its agents."""

from __future__ import annotations

import os

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

#: The kernel never splits a write of up to this many bytes into a pipe.
_MOST_BYTES = 4096
_WORDS, _NODES = 1000, 64


class StarterReport(Noun, frozen=True, kw_only=True):
    """One report of a starter."""

    #: The event as a clause, for the user.
    words: str
    #: A command for the user to type.
    hint: str = ""
    #: Nodes that will get no agent any more.
    nodes: tuple[str, ...] = ()
    #: Whether the platform has taken these nodes out of the job; the command in `hint` shows it.
    lost: bool = False
    #: Number of further nodes, not listed in `nodes`, that get none either.
    more: int = 0


class StarterPipe:
    """A pipe from a starter to the owner. The guard of both creates it, so a restarted starter or owner has it too."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def say(self, said: StarterReport) -> None:
        """Send a report to the owner. It is dropped if the pipe is full."""
        nodes = said.nodes[:_NODES]
        cut = StarterReport(
            words=said.words[:_WORDS],
            hint=said.hint[:_WORDS],
            nodes=nodes,
            lost=said.lost,
            more=len(said.nodes) - len(nodes),
        )
        line = msgspec.json.encode(cut) + b"\n"
        try:
            os.write(self._writer, line if len(line) <= _MOST_BYTES else b"")
        except BlockingIOError:
            pass  # an owner that does not read its pipe has worse problems


def parse_starter_reports(data: bytes) -> tuple[StarterReport, ...]:
    """Parse the reports in a block of bytes from the pipe. Malformed lines are skipped."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json_as(line, StarterReport, most_bytes=_MOST_BYTES))
        except Malformed:
            continue
    return tuple(found)


class FirstToken:
    """A token in a pipe that the guard creates: the first process of a starter takes it."""

    def __init__(self) -> None:
        self._reader, token = os.pipe()
        os.write(token, b"+")
        os.close(token)

    def first(self) -> bool:
        """Take the token; return whether this process is the first of its starter."""
        return bool(os.read(self._reader, 1))
