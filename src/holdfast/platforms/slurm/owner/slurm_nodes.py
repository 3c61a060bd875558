"""Query Slurm once about each node that the gang has lost, and drain nodes with a device that a person must check.

The job may also have been suspended (`scontrol suspend`, or gang scheduling), which stops all its processes. When it
resumes, the leases have expired, and agents and owner have missed each other's messages. The job's record shows the
suspension.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.model.events import PlatformSaid
from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.job_restarts import node_words
from holdfast.platforms.slurm.text.node_treatment import SlurmNodeAction, treat
from holdfast.platforms.slurm.text.scontrol_records import job, nodes
from holdfast.record.local_time import clock

if TYPE_CHECKING:
    from holdfast.platforms.slurm.text.allocation import SlurmJobIds
    from holdfast.reactor import News

#: Maximum number of lost nodes about which Slurm is queried in one attempt.
MOST = 16
#: Time limit of a query about a node, in seconds.
NODE_LIMIT_S = 5.0
JOB_LIMIT_S = 2.0
#: If a node is lost within this many seconds after the job was resumed, the suspension is the reason.
LATELY_S = 60.0


class LostNodes:
    """Queries Slurm about the lost nodes of one job.

    If slurmctld does not answer, the report contains nothing from Slurm.
    """

    def __init__(self, asking: SlurmCommands, ids: SlurmJobIds, say: Callable[[str], None]) -> None:
        """`asking`: runs Slurm commands. `ids`: ids of the job. `say`: prints a message of the owner."""
        self._asking = asking
        self._ids = ids
        self._say = say
        self._attempt = 0
        self._asked: set[str] = set()
        self._of_attempt = 0
        #: Whether the attempt's report must wait for Slurm, which may explain why agents and owner lost contact.
        self.asking = False

    def ask(self, node: str, attempt: int) -> None:
        """Query Slurm about a node that attempt `attempt` has lost."""
        if attempt != self._attempt:
            self._attempt, self._asked = attempt, set()
        if node in self._asked or len(self._asked) >= MOST:
            return
        self._asked.add(node)
        said = partial(self._said, node, attempt)
        self._asking.ask(("scontrol", "show", "node", node), said, limit_s=NODE_LIMIT_S)

    def ask_of_job(self, attempt: int) -> None:
        """Query Slurm about the whole job, because this attempt has lost nodes or agents."""
        if attempt <= self._of_attempt:
            return
        self._of_attempt, self.asking = attempt, True
        self._asking.ask(
            ("scontrol", "show", "job", self._ids.shown), partial(self._of_job, attempt), limit_s=JOB_LIMIT_S
        )

    def _of_job(self, attempt: int, answer: CommandOutput, now: float) -> News:
        self.asking = False
        record = job(answer.out, self._ids.job) if answer.ok else None
        at = record.resumed_at if record is not None else None
        if record is None or record.state != "RUNNING" or at is None or abs(now - at) > LATELY_S:
            return None
        words = f"Slurm had suspended it until {clock(at)}: no process of the job could run, and its leases ended"
        self._say(f"job {self._ids.shown}: {words}")
        return [PlatformSaid(attempt=attempt, subject=f"job {self._ids.shown}", words=words, command=answer.command)]

    def _said(self, node: str, attempt: int, answer: CommandOutput, now: float) -> News:
        found = next((each for each in nodes(answer.out) if each.name == node), None) if answer.ok else None
        if found is None:
            return None
        words = node_words(found)
        if not (found.down or found.silent or found.drained or found.reason):
            words += ", nothing wrong so far"
        return [PlatformSaid(attempt=attempt, subject=node, words=words, command=answer.command, node=node)]


#: Time limit of each of two commands, in seconds. The attempt's evidence is complete only after their answers.
DRAIN_LIMIT_S = 2.0


class NodeDrain:
    """Drains nodes for one job. A node is drained at most once for each reason. `asking`: runs Slurm commands."""

    def __init__(self, asking: SlurmCommands, say: Callable[[str], None]) -> None:
        self._asking = asking
        self._say = say
        self._asked: set[tuple[str, str]] = set()
        self._open = 0

    @property
    def busy(self) -> bool:
        """Whether a Slurm command for a drain still runs."""
        return self._open > 0

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Ask Slurm to place no more jobs on this node. Slurm's answer becomes evidence of the attempt."""
        if (node, reason) in self._asked:
            return
        self._asked.add((node, reason))
        self._open += 1

        def seen(answer: CommandOutput, now: float) -> News:
            record = next((each for each in nodes(answer.out) if each.name == node), None) if answer.ok else None
            # If Slurm does not answer now, the node's own health check finds the trouble later.
            treatment = treat(record, (reason,), gives_back=False) if record is not None else None
            if treatment is None or treatment.doing is not SlurmNodeAction.DRAIN:
                self._open -= 1
                return None
            self._asking.ask(treatment.command, tried, limit_s=DRAIN_LIMIT_S)
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
            return (PlatformSaid(attempt=attempt, subject=node, words=words, command=command, node=node),)

        self._asking.ask(("scontrol", "show", "node", node), seen, limit_s=DRAIN_LIMIT_S)
