"""What Slurm says of nodes that the gang has lost: asked once for each, and awaited by nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.cluster.slurm.asking import Answer, Asking
from holdfast.cluster.slurm.ended import node_words
from holdfast.cluster.slurm.records import nodes
from holdfast.model.events import PlatformSaid

if TYPE_CHECKING:
    from holdfast.reactor import News

MOST = 16
"""So many nodes of an attempt are asked about."""
LIMIT_S = 5.0


class LostNodes:
    """Of one owner. A slurmctld that is away says nothing, and the report does without it."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._attempt = 0
        self._asked: set[str] = set()

    def ask(self, node: str, attempt: int) -> None:
        """`attempt`: the one that has lost it."""
        if attempt != self._attempt:
            self._attempt, self._asked = attempt, set()
        if node in self._asked or len(self._asked) >= MOST:
            return
        self._asked.add(node)
        said = partial(self._said, node, attempt)
        self._asking.ask(("scontrol", "show", "node", node), said, limit_s=LIMIT_S)

    def _said(self, node: str, attempt: int, answer: Answer, now: float) -> News:
        found = next((each for each in nodes(answer.out) if each.name == node), None) if answer.ok else None
        if found is None:
            return None
        words = node_words(found)
        if not (found.down or found.silent or found.drained or found.reason):
            words += ", nothing wrong so far"
        return [PlatformSaid(attempt=attempt, subject=node, words=words, command=answer.command, node=node)]
