"""Between an owner and the link to its nodes: what is asked of all nodes, and what is made of their answers.

A question goes to several nodes, and one answer comes back (`decide/roundup.py`); a gang that is silent is looked at on
all its nodes at once (`decide/silence.py`). A job on one machine without a hang time-out has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from holdfast.decide.phases import Phase
from holdfast.model.actions import CollectEvidence, RunChecks
from holdfast.model.commands import Report
from holdfast.model.events import HangFound
from holdfast.model.looks import LookAtRanks, RanksSeen, WantLastWords
from holdfast.record.local_time import local
from holdfast.wire.messages import Moved

if TYPE_CHECKING:
    from holdfast.decide.roundup import Roundup
    from holdfast.decide.silence import Next, Silence
    from holdfast.decide.view import GangView
    from holdfast.model.events import Event
    from holdfast.model.jobs import JobSpec
    from holdfast.reactor import Reactor
    from holdfast.wire.link import Request, ToNodes, Word


class Questions:
    """The owner's link (`holdfast.wire.link.ToNodes`).

    `link` reaches the nodes; `answer` takes what is for the owner.
    """

    def __init__(self, link: ToNodes, reactor: Reactor, spec: JobSpec, answer: Callable[[Word], None]) -> None:
        self._link = link
        self._reactor = reactor
        self._answer = answer
        self._roundup: Roundup | None = None
        self._silence: Silence | None = None
        self._began_at = 0.0
        if spec.nodes.many:
            from holdfast.decide.roundup import Roundup  # one node answers for itself

            self._roundup = Roundup()
            reactor.deadlines(self._roundup.next_wake, self._roundup.due)
        if spec.hang_timeout_s is not None:
            from holdfast.decide.silence import Silence  # few jobs ask for it

            self._silence = Silence(spec.hang_timeout_s)
            reactor.deadlines(self._silence.next_wake, self._overdue)

    # ------------------------------------------------------------------------------------------ to the nodes

    def send(self, node: str, request: Request) -> None:
        self._link.send(node, request)

    def send_all(self, request: Request) -> None:
        match request:
            case Moved():
                self._moved(request.view)
            case RunChecks() if self._roundup is not None:
                self._roundup.ask(request, self._reactor.now())
            case CollectEvidence() if self._roundup is not None:
                request = replace(request, evidence=replace(request.evidence, utc_offset_s=local(self._began_at)))
                self._roundup.ask(request, self._reactor.now())
            case _:
                pass
        self._link.send_all(request)

    # ------------------------------------------------------------------------------------------ from the nodes

    def report(self, word: Word, node: str = "") -> None:
        """A node says something: the owner gets it, or what all nodes say once the last has answered.

        `node`: whose connection it came on; empty where there is one node.
        """
        if isinstance(word, RanksSeen):
            if self._silence is not None:
                self._go_on(self._silence.hear(node, word, self._reactor.now()))
        elif isinstance(word, Report) or self._roundup is None:
            self._answer(word)
        elif (whole := self._roundup.hear(node, word, self._reactor.now())) is not None:
            self._answer(whole)

    # ------------------------------------------------------------------------------------------ silence

    def _moved(self, view: GangView) -> None:
        self._began_at = view.started_at
        if self._silence is None:
            return
        if view.phase is Phase.RUNNING:
            self._silence.begin(view.attempt, view.seats, self._reactor.now())
        else:
            self._silence.end()

    def _overdue(self, now: float) -> Iterator[Event]:
        assert self._silence is not None, "it asked to be woken"
        self._go_on(self._silence.due(now))
        return iter(())

    def _go_on(self, steps: Iterable[Next]) -> None:
        for step in steps:
            match step:
                case LookAtRanks() | WantLastWords():
                    self._link.send_all(step)
                case HangFound():
                    self._answer(step)
                case _:
                    assert_never(step)
