"""What a starter reports to the owner while the job runs: a line for each thing that happens to its agents."""

from __future__ import annotations

import os

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

#: A write of up to so many bytes into a pipe is never split.
_MOST_BYTES = 4096
_WORDS, _NODES = 1000, 64


class StarterReport(Noun, frozen=True, kw_only=True):
    """One report of a starter."""

    #: A clause for the user.
    words: str
    #: A command to type.
    hint: str = ""
    #: These nodes get no agent any more.
    nodes: tuple[str, ...] = ()
    #: The platform has taken these nodes out of the job; `hint` shows it.
    lost: bool = False
    #: So many more nodes get none either.
    more: int = 0


class StarterPipe:
    """A pipe from a starter to the owner. Their guard makes it, so each restarted starter and owner has it."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def say(self, said: StarterReport) -> None:
        """Tell the owner; a report for which the pipe has no room is dropped."""
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
            pass  # an owner that does not read has other trouble


def parse_starter_reports(data: bytes) -> tuple[StarterReport, ...]:
    """The reports in a block from the pipe. A line that cannot be read is left out."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json_as(line, StarterReport, most_bytes=_MOST_BYTES))
        except Malformed:
            continue
    return tuple(found)


class FirstToken:
    """A token in a pipe that the guard makes: the first process of a starter takes it."""

    def __init__(self) -> None:
        self._reader, token = os.pipe()
        os.write(token, b"+")
        os.close(token)

    def first(self) -> bool:
        """Whether this is the first process of this starter."""
        return bool(os.read(self._reader, 1))
