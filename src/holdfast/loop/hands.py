"""A node's agent and its host: what the owner commands is done with processes, and what becomes of them is reported."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.decide.agent import Agent
from holdfast.model.commands import Command, Report
from holdfast.model.processes import Fact, Instruction, SendReport

if TYPE_CHECKING:
    from holdfast.act.host import Host
    from holdfast.reactor import Reactor


class Hands:
    """`report` takes the agent's word to the owner."""

    def __init__(self, agent: Agent, reactor: Reactor, report: Callable[[Report], None]) -> None:
        self._agent = agent
        self._report = report
        self._host: Host | None = None
        reactor.deadlines(agent.next_wake, lambda now: self._perform(agent.tick(now), now))

    def serve(self, host: Host) -> None:
        """Whose processes it is about; before the first command."""
        self._host = host

    def obey(self, command: Command, now: float) -> None:
        self._perform(self._agent.obey(command, now), now)

    def learn(self, facts: list[Fact], now: float) -> None:
        """Facts about processes go to the agent, and what it says to do is done at once."""
        for fact in facts:
            self._perform(self._agent.learn(fact, now), now)

    def _perform(self, instructions: list[Instruction], now: float) -> None:
        """What follows at once from what the host does goes straight back to the agent."""
        queue = deque(instructions)
        while queue:
            instruction = queue.popleft()
            if isinstance(instruction, SendReport):
                self._report(instruction.report)
                continue
            assert self._host is not None, "served before the first command"
            for fact in self._host.perform(instruction, now):
                queue.extend(self._agent.learn(fact, now))
