"""What Slurm says of nodes that the gang has lost: asked once for each.

A job that Slurm suspends (`scontrol suspend`, or gang scheduling) has all processes stopped: when it goes on, the
leases are over, and each side misses words of the other. The job's record says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.model.events import PlatformSaid
from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.end_reasons import node_words
from holdfast.platforms.slurm.text.scontrol_records import job, nodes
from holdfast.record.local_time import clock

if TYPE_CHECKING:
    from holdfast.platforms.slurm.owner.job_ids import SlurmJobIds
    from holdfast.reactor import News

#: So many nodes of an attempt are asked about.
MOST = 16
LIMIT_S = 5.0
JOB_LIMIT_S = 2.0
#: So long after it goes on, what a job loses is lost because it was suspended.
LATELY_S = 60.0


class LostNodes:
    """Of one owner. A slurmctld that is away says nothing, and the report does without it."""

    def __init__(self, asking: SlurmCommands, ids: SlurmJobIds, say: Callable[[str], None]) -> None:
        self._asking = asking
        self._ids = ids
        self._say = say
        self._attempt = 0
        self._asked: set[str] = set()
        self._of_attempt = 0
        self.asking = False
        """The answer may say why the agents missed the owner's words: the report waits for it."""

    def ask(self, node: str, attempt: int) -> None:
        """`attempt`: the one that has lost it."""
        if attempt != self._attempt:
            self._attempt, self._asked = attempt, set()
        if node in self._asked or len(self._asked) >= MOST:
            return
        self._asked.add(node)
        said = partial(self._said, node, attempt)
        self._asking.ask(("scontrol", "show", "node", node), said, limit_s=LIMIT_S)

    def ask_of_job(self, attempt: int) -> None:
        """Nodes or agents of this attempt were lost."""
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
