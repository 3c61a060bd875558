"""Warns if a gang without a hang time-out is idle for too long. It warns once per attempt, and stops nothing.

At the job's start it only sets a deadline. It imports the module that judges after the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.decide.phases import Phase
from holdfast.model.gang_protocol import LookAtRanks, RanksSeen
from holdfast.wire.node_messages import Moved

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.model.events import Event
    from holdfast.model.evidence import HangEvidence
    from holdfast.owner.idle_judge import IdleJudge
    from holdfast.reactor import Reactor
    from holdfast.wire.link_interface import NodesLink, Request, Word


class IdleReporter:
    """Passes messages to the nodes, like `holdfast.wire.link_interface.NodesLink`. It also watches for an idle gang.

    `link`: reaches the nodes. `after_s`: seconds without a sign of life until the warning. `answer`: passes results to
    the owner. `say`: prints the warning. `folder`: the directory for the stacks.
    """

    def __init__(
        self,
        link: NodesLink,
        reactor: Reactor,
        after_s: float,
        answer: Callable[[Word], None],
        say: Callable[[str], None],
        folder: Path,
    ) -> None:
        self._link = link
        self._reactor = reactor
        self._after_s = after_s
        self._answer = answer
        self._say = say
        self._folder = folder
        self._view: GangView | None = None
        self._attempt = 0
        self._began_at = 0.0
        #: Judges whether the running attempt is idle. None before the attempt's first deadline.
        self._judge: IdleJudge | None = None
        reactor.deadlines(self._next_wake, self._due)

    def send(self, node: str, request: Request) -> None:
        self._link.send(node, request)

    def send_all(self, request: Request) -> None:
        if isinstance(request, Moved):
            self.moved(request.view)
        self._link.send_all(request)

    def report(self, word: Word, node: str = "") -> None:
        if isinstance(word, RanksSeen):
            self.hear(node, word)
        else:
            self._answer(word)

    def moved(self, view: GangView) -> None:
        """Handle a new phase or attempt of the gang. Only a running attempt is watched."""
        if view.phase is not Phase.RUNNING:
            self._view = self._judge = None
        elif self._view is None or self._attempt != view.attempt:
            self._view, self._attempt, self._judge = view, view.attempt, None
            self._began_at = self._reactor.now()

    def hear(self, node: str, seen: RanksSeen) -> None:
        """Handle a node's answer to a request for a sample of its ranks."""
        if self._judge is not None:
            self._go_on(self._judge, self._judge.hear(node, seen, self._reactor.now()))

    # ------------------------------------------------------------------------------------------ private methods

    def _next_wake(self) -> float | None:
        if self._judge is not None:
            return self._judge.next_wake()
        return self._began_at + self._after_s / 4 if self._view is not None else None

    def _due(self, now: float) -> Iterator[Event]:
        if self._judge is None and self._view is not None:
            # imported late, because a job's start does not need this module
            from holdfast.owner.idle_judge import IdleJudge

            self._judge = IdleJudge(self._after_s)
            self._judge.begin(self._attempt, self._view.placements, self._began_at, now)
        if self._judge is not None:
            self._go_on(self._judge, self._judge.due(now))
        return iter(())

    def _go_on(self, judge: IdleJudge, step: LookAtRanks | HangEvidence | None) -> None:
        if isinstance(step, LookAtRanks):
            self._link.send_all(step)
        elif step is not None:
            judge.warn(step, self._say, self._folder)
