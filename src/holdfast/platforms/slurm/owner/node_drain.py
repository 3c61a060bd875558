"""Drain a node with a device that a person must check. If the user may not, the report names the command."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model import events as ev
from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.node_treatment import SlurmNodeAction, treat
from holdfast.platforms.slurm.text.scontrol_records import nodes

if TYPE_CHECKING:
    from holdfast.reactor import News

#: Time limit of each of two commands, in seconds. The attempt's evidence waits for their answers.
LIMIT_S = 2.0


class NodeDrain:
    """Drains nodes for one job, once for each node and reason."""

    def __init__(self, asking: SlurmCommands, say: Callable[[str], None]) -> None:
        self._asking = asking
        self._say = say
        self._asked: set[tuple[str, str]] = set()
        self._open = 0

    @property
    def busy(self) -> bool:
        """Whether an answer from Slurm is pending."""
        return self._open > 0

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Have Slurm place no more jobs on this node. Its answer becomes evidence of the attempt."""
        if (node, reason) in self._asked:
            return
        self._asked.add((node, reason))
        self._open += 1

        def seen(answer: CommandOutput, now: float) -> News:
            record = next((each for each in nodes(answer.out) if each.name == node), None) if answer.ok else None
            # If Slurm has no answer now, the node's own health check finds the trouble later.
            treatment = treat(record, (reason,), gives_back=False) if record is not None else None
            if treatment is None or treatment.doing is not SlurmNodeAction.DRAIN:
                self._open -= 1
                return None
            self._asking.ask(treatment.command, tried, limit_s=LIMIT_S)
            return None

        def tried(answer: CommandOutput, now: float) -> News:
            self._open -= 1
            command = shlex.join(answer.words)
            if answer.ok:
                self._say(f"{node} is drained: {reason}")
                words = f"{node} is drained by holdfast: {reason}"
            else:
                self._say(f"{node} is not drained: {answer.said}; an administrator types: {command}")
                words = f"{node} should be drained ({reason}); {answer.said}"
            return (ev.PlatformSaid(attempt=attempt, subject=node, words=words, command=command, node=node),)

        self._asking.ask(("scontrol", "show", "node", node), seen, limit_s=LIMIT_S)
