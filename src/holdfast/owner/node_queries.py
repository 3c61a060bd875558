"""Sends the owner's requests to its nodes, and merges the nodes' answers.

Three modules of `decide/queries` decide: `answer_collection` merges answers, `link_measurement` measures the links
between the nodes after their checks, and `hang_detection` samples a silent gang. A job on one machine without a hang
time-out needs none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from holdfast.decide.phases import Phase
from holdfast.decide.queries.link_measurement import NAME as LINKS
from holdfast.decide.queries.link_measurement import LinkMeasurement, Orders, with_links, worth_measuring
from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.model.events import ChecksFinished, HangFound
from holdfast.model.gang_protocol import (
    TOKEN_BYTES,
    LookAtRanks,
    PeerMeasured,
    PortOpen,
    RanksSeen,
    Report,
    WantLastWords,
)
from holdfast.owner.idle_reporter import IdleReporter
from holdfast.record.local_time import local
from holdfast.wire.node_messages import Moved

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.decide.queries.answer_collection import AnswerCollection
    from holdfast.decide.queries.hang_detection import HangDetection, Next
    from holdfast.model.events import Event
    from holdfast.model.job_spec import JobSpec
    from holdfast.reactor import Reactor
    from holdfast.wire.link_interface import NodesLink, Request, Word


class NodeQueries:
    """The owner's link to its nodes (`holdfast.wire.link_interface.NodesLink`).

    `link`: reaches the nodes. `answer`: passes results to the owner. `address_of(node)`: the address by which peers
    reach a node. `warn`: the function that prints the warning about an idle gang, and the directory for its stacks.
    """

    def __init__(
        self,
        link: NodesLink,
        reactor: Reactor,
        spec: JobSpec,
        answer: Callable[[Word], None],
        address_of: Callable[[str], str] = lambda node: "",
        warn: tuple[Callable[[str], None], Path] | None = None,
    ) -> None:
        self._link = link
        self._address_of = address_of
        self._measures = spec.checks is None or any(choice.name == LINKS for choice in spec.checks)
        self._round: RunChecks | None = None
        self._links: LinkMeasurement | None = None
        self._checked: ChecksFinished | None = None
        #: The nodes whose links worked in the last measurement of links.
        self._linked: tuple[str, ...] = ()
        self._reactor = reactor
        self._answer = answer
        self._roundup: AnswerCollection | None = None
        self._silence: HangDetection | None = None
        self._began_at = 0.0
        if spec.nodes.many:
            # imported late, because only jobs on several nodes need it
            from holdfast.decide.queries.answer_collection import AnswerCollection

            self._roundup = AnswerCollection()
            reactor.deadlines(self._roundup.next_wake, self._roundup.due)
            reactor.deadlines(self._links_wake, self._links_due)
        if spec.hang_timeout_s is not None:
            # imported late, because few jobs have a hang time-out
            from holdfast.decide.queries.hang_detection import HangDetection

            self._silence = HangDetection(spec.hang_timeout_s)
            reactor.deadlines(self._silence.next_wake, self._overdue)
        self._quiet: IdleReporter | None = None
        if warn is not None and spec.hang_timeout_s is None and spec.hang_warning_s:
            self._quiet = IdleReporter(link, reactor, spec.hang_warning_s, answer, *warn)

    # ---------------------------------------------------------------------------------- sending requests to the nodes

    def send(self, node: str, request: Request) -> None:
        self._link.send(node, request)

    def send_all(self, request: Request) -> None:
        match request:
            case Moved():
                self._moved(request.view)
            case RunChecks() if self._roundup is not None:
                self._round, self._links = request, None
                self._roundup.ask(request, self._reactor.now())
            case CollectEvidence() if self._roundup is not None:
                request = replace(request, evidence=replace(request.evidence, utc_offset_s=local(self._began_at)))
                self._roundup.ask(request, self._reactor.now())
            case RunHooks() if self._roundup is not None:
                self._roundup.ask(request, self._reactor.now())
            case _:
                pass
        self._link.send_all(request)

    # -------------------------------------------------------------------------------- receiving messages from the nodes

    def report(self, word: Word, node: str = "") -> None:
        """Pass a node's message to the owner.

        If several nodes answer one request, the owner gets one merged answer after the last of them.

        `node`: the node that sent the message; empty if there is only one node.
        """
        if isinstance(word, RanksSeen):
            if self._silence is not None:
                self._go_on(self._silence.hear(node, word, self._reactor.now()))
            elif self._quiet is not None:
                self._quiet.hear(node, word)
        elif isinstance(word, PortOpen | PeerMeasured):
            if self._links is not None:
                self._tell(self._links, self._links.hear(node, word, self._reactor.now()))
        elif isinstance(word, Report) or self._roundup is None:
            self._answer(word)
        elif (whole := self._roundup.hear(node, word, self._reactor.now())) is not None:
            self._whole(whole)

    # -------------------------------------------------------------- measuring the links between nodes

    def _whole(self, event: Event) -> None:
        """Handle the merged answer of all nodes.

        If all nodes have passed a round of checks, measure the links between them next.
        """
        order = self._round
        passed = isinstance(event, ChecksFinished) and order is not None and worth_measuring(event, order, self._linked)
        if self._measures and passed:
            assert order is not None and isinstance(event, ChecksFinished)
            addresses = {node: self._address_of(node) for node in order.nodes}
            self._checked = event
            self._links = LinkMeasurement(order, addresses, os.urandom(TOKEN_BYTES).hex(), self._reactor.now())
            self._tell(self._links, self._links.begin())
        else:
            self._answer(event)

    def _tell(self, links: LinkMeasurement, orders: Orders) -> None:
        for node, order in orders:
            self._link.send(node, order)
        if links.verdict is not None and links is self._links and self._checked is not None:
            self._links = None
            self._linked = self._round.nodes if self._round is not None and links.verdict.failure is None else ()
            self._answer(with_links(self._checked, links.verdict))

    def _links_wake(self) -> float | None:
        return self._links.next_wake() if self._links is not None else None

    def _links_due(self, now: float) -> Iterator[Event]:
        assert self._links is not None, "it asked to be woken"
        self._tell(self._links, self._links.due(now))
        return iter(())

    # ----------------------------------------------------------------------------------------- detecting hangs

    def _moved(self, view: GangView) -> None:
        self._began_at = view.started_at
        if self._quiet is not None:
            self._quiet.moved(view)
        if self._silence is None:
            return
        if view.phase is Phase.RUNNING:
            self._silence.begin(view.attempt, view.placements, self._reactor.now())
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
