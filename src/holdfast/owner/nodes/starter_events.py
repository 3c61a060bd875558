"""Reads the messages of the starter (the program that starts the agents): which nodes get no agent, and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.job_spec import NodePlan
from holdfast.model.phrases import Phrase
from holdfast.reactor import Reactor
from holdfast.wire.starter_reports import parse_starter_reports

if TYPE_CHECKING:
    from holdfast.reactor import DescriptorWatch, News

_MOST = 1 << 20


class StarterPipeReader:
    """Reads the messages of the starter (the program that starts the agents) at the owner's end of their pipe.

    The gang does not wait for nodes that get no agent. If too few nodes are left, the job ends, with the starter's
    message as the reason. `plan`: how many nodes the job needs. `attempt()`: the gang's attempt; 0 while the gang still
    waits for its nodes. `say`: prints a message.
    """

    def __init__(
        self,
        fd: int,
        reactor: Reactor,
        plan: NodePlan,
        attempt: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._attempt = attempt
        self._say = say
        self._out: set[str] = set()
        self._watch: DescriptorWatch | None = reactor.watch(fd, self._ready)

    def _ready(self, fd: int, now: float) -> News:
        news = parse_starter_reports(os.read(fd, _MOST))
        for said in news:
            self._out.update(said.nodes, (f"another, {number}" for number in range(said.more)))
        attempt = self._attempt()
        too_few = len(self._plan.names) - len(self._out) < self._plan.least and not attempt
        for said in news[:-1] if too_few else news:
            self._say(f"{said.words}\n  try: {said.hint}" if said.hint else said.words)
        if not news or not too_few:
            return [
                ev.PlatformSaid(attempt=attempt, subject=node, words=said.words, command=said.hint, node=node)
                for said in news
                for node in (*(said.nodes if said.lost else ()), *said.anew)
            ]
        last = news[-1]
        self.close()
        request = StopRequest(
            reason=f"{last.words}; {len(self._out)} of {len(self._plan.names)} nodes get no agent, and the job needs "
            f"{self._plan.least}",
            solution=f"Try: {last.hint}" if last.hint else "",
            source=StopSource.SUPERVISOR,
            phrase=Phrase.SCHEDULER_ERROR,
            at=now,
        )
        return [ev.StopRequested(request=request)]

    def close(self) -> None:
        """Stop reading the starter's messages, because the job is over."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
