"""The link between owner and node in a job on one machine.

Both run in one process, so a message is a function call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.wire.link_interface import Request, Word


class InProcess:
    """Both ends of the link in one object. Call `join` before the first message."""

    def __init__(self) -> None:
        self._owner: Callable[[Word], None] | None = None
        self._nodes: dict[str, Callable[[Request], None]] = {}

    def join(self, owner: Callable[[Word], None], nodes: dict[str, Callable[[Request], None]]) -> None:
        """Set the receivers of messages: `owner` is called with each message of a node, `nodes[name]` with each request
        to that node.
        """
        self._owner, self._nodes = owner, nodes

    def send(self, node: str, request: Request) -> None:
        self._nodes[node](request)

    def send_all(self, request: Request) -> None:
        for take in self._nodes.values():
            take(request)

    def report(self, word: Word) -> None:
        assert self._owner is not None, "joined before the first message"
        self._owner(word)
