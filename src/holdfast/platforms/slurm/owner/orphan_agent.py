"""Let an agent restart or end its job, after the node with the batch script and the owner is lost.

Under `--no-kill` Slurm leaves such a job RUNNING, and no other process could end it. An agent that cannot reach its
owner reads the job's record. If the batch script's node is lost, the agent requests a requeue from Slurm, or cancels
the job if a requeue is not allowed. Agents check one after the other, so that normally only one acts. If the job has
been restarted since, the agent does nothing. Slurm does not use the lost node until it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.allocation import ids_of
from holdfast.platforms.slurm.text.job_restarts import is_left_alone, node_words, requeue_refusal
from holdfast.platforms.slurm.text.scontrol_records import JobRecord, job, nodes

if TYPE_CHECKING:
    from holdfast.platforms.slurm.text.allocation import SlurmJobIds
    from holdfast.reactor import News, Reactor

#: Delay between the first checks of successive agents, in seconds.
AFTER_S = 3.0
LONGEST_AFTER_S = 30.0
LOOKS_S = 5.0
#: Longest pause between two checks, in seconds. Slurm may detect a lost node late (SlurmdTimeout, 300 s by default).
MOST_LOOKS_S = 60.0
#: After this many seconds the agent gives up, because Slurm still considers the batch script's node alive.
PATIENCE_S = 1800.0
#: How long Slurm may take to kill this agent after the agent's request, in seconds.
_ENDED_S = 60.0


def orphan(
    reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
) -> OrphanAgent | None:
    """Watch over the job of an agent without an owner. `done` is called when nothing is left to do.

    Return None if Slurm's variables name no job, or if they cannot be parsed.
    """
    ids = ids_of(environment)
    return OrphanAgent(SlurmCommands(reactor, environment), ids, say, done) if ids is not None else None


class OrphanAgent:
    """Checks the state of a job in Slurm, for one of its agents whose owner does not answer."""

    def __init__(
        self, asking: SlurmCommands, ids: SlurmJobIds, say: Callable[[str], None], done: Callable[[], None]
    ) -> None:
        """`asking`: runs Slurm commands. `ids`: ids of the job. `say`: prints a message.

        `done`: called when the agent has nothing left to do.
        """
        self._asking = asking
        self._reactor = asking.reactor
        self._ids = ids
        self._say = say
        self._done = done
        self._pause_s = LOOKS_S
        self._until = self._reactor.now() + PATIENCE_S
        self._record: JobRecord | None = None
        wait_s = min(AFTER_S * ids.node_index, LONGEST_AFTER_S)
        self._reactor.at(self._reactor.now() + wait_s, self._look)

    def _look(self, now: float) -> News:
        self._asking.ask(("scontrol", "show", "job", self._ids.shown), self._shown)
        return None

    def _shown(self, answer: CommandOutput, now: float) -> News:
        record = self._record = job(answer.out, self._ids.job) if answer.ok else None
        if record is None:
            return self._again(now)
        if record.restarts > self._ids.restarts or not is_left_alone(record):
            self._done()
            return None
        self._asking.ask(("scontrol", "show", "node", record.batch_host), self._node)
        return None

    def _node(self, answer: CommandOutput, now: float) -> News:
        """If the batch script's node is lost, requeue or cancel the job. Otherwise check again later."""
        record = self._record
        assert record is not None, "it was shown"
        found = nodes(answer.out) if answer.ok else ()
        if not is_left_alone(record, found[0] if found else None):
            return self._again(now)
        words = f" ({node_words(found[0])})" if found else ""
        lost = f"the node of the batch script, {record.batch_host}, is lost{words}, and the job's owner with it"
        if why := requeue_refusal(record):
            self._say(f"{lost}; Slurm is asked to end job {self._ids.shown}, since {why}")
            self._asking.ask(("scancel", self._ids.shown), self._ended)
        else:
            self._say(f"{lost}; Slurm is asked to start job {self._ids.shown} again")
            self._asking.ask(("scontrol", "requeue", self._ids.shown), self._ended)
        return None

    def _ended(self, answer: CommandOutput, now: float) -> News:
        if not answer.ok:
            self._say(f"`{answer.command}`: {answer.said}")
        self._reactor.at(now + _ENDED_S, lambda now: self._done())
        return None

    def _again(self, now: float) -> News:
        """Check again later, because Slurm does not answer or has not detected the loss of the node yet."""
        if now >= self._until:
            self._done()
            return None
        self._reactor.at(now + self._pause_s, self._look)
        self._pause_s = min(2 * self._pause_s, MOST_LOOKS_S)
        return None
