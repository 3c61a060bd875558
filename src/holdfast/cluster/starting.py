"""What a starter tells the owner while the job runs: a line for each thing that happens to the agents it starts."""

from __future__ import annotations

import os

import msgspec

from holdfast.model.base import Noun
from holdfast.untrusted import Malformed, json_as

_MOST_BYTES = 4096
"""A write of so much into a pipe is whole."""
_WORDS, _NODES = 1000, 64


class StarterSaid(Noun, frozen=True, kw_only=True):
    """One thing that a starter has to say."""

    words: str
    """A clause for a person."""
    hint: str = ""
    """What to type."""
    nodes: tuple[str, ...] = ()
    """These get no agent any more."""
    lost: bool = False
    """The platform has taken these nodes out of the job; `hint` shows it."""
    more: int = 0
    """So many further nodes do not either."""


class News:
    """A pipe from a starter to the owner. It is made in their guard, so each generation of both has it."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def say(self, said: StarterSaid) -> None:
        """Tell the owner; what it has no room for is left out."""
        nodes = said.nodes[:_NODES]
        cut = StarterSaid(
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
            pass  # an owner that reads nothing has other troubles


def heard(data: bytes) -> tuple[StarterSaid, ...]:
    """What a block of the pipe says. A line that cannot be read is left out."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json_as(line, StarterSaid, most_bytes=_MOST_BYTES))
        except Malformed:
            continue
    return tuple(found)


class Once:
    """A token in a pipe, which is made in the guard: the first process of a starter takes it."""

    def __init__(self) -> None:
        self._reader, token = os.pipe()
        os.write(token, b"+")
        os.close(token)

    def first(self) -> bool:
        """Whether no process of this starter was there before."""
        return bool(os.read(self._reader, 1))
