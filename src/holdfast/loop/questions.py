"""Between an owner and the link to its nodes: a question goes to several nodes, and one answer comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.decide.roundup import Roundup
from holdfast.model.actions import CollectEvidence, RunChecks
from holdfast.model.commands import Report
from holdfast.record.local_time import local
from holdfast.wire.messages import Moved

if TYPE_CHECKING:
    from holdfast.model.events import Event
    from holdfast.reactor import Reactor
    from holdfast.wire.link import Request, ToNodes, Word


class Questions:
    """The owner's link (`holdfast.wire.link.ToNodes`) where a job has several nodes. A job on one machine has none.

    `link` reaches the nodes; `answer` takes what is for the owner.
    """

    def __init__(self, link: ToNodes, reactor: Reactor, answer: Callable[[Word], None]) -> None:
        self._link = link
        self._reactor = reactor
        self._answer = answer
        self._roundup = Roundup()
        self._began_at = 0.0
        reactor.deadlines(self._roundup.next_wake, self._due)

    def send(self, node: str, request: Request) -> None:
        self._link.send(node, request)

    def send_all(self, request: Request) -> None:
        match request:
            case Moved():
                self._began_at = request.view.started_at
            case RunChecks():
                self._roundup.ask(request, self._reactor.now())
            case CollectEvidence():
                evidence = replace(request.evidence, utc_offset_s=local(self._began_at))
                request = replace(request, evidence=evidence)
                self._roundup.ask(request, self._reactor.now())
            case _:
                pass
        self._link.send_all(request)

    def report(self, word: Word, node: str) -> None:
        """A node says something: the owner gets it, or what all nodes say once the last has answered."""
        if isinstance(word, Report):
            self._answer(word)
        elif (whole := self._roundup.hear(node, word, self._reactor.now())) is not None:
            self._answer(whole)

    def _due(self, now: float) -> Iterator[Event]:
        yield from self._roundup.due(now)
