"""Ask Slurm to restart the job without certain nodes, at most once in each run of the job.

    scontrol show job J                        Was the job restarted already? May it be? Which nodes does it exclude?
    scontrol show partition P                  Are there enough other nodes?
    scontrol update jobid=J nodelist=…         Remove lost nodes. Otherwise the job is COMPLETING until they are down.
    scontrol requeue J
    scontrol update jobid=J excnodelist=…      Exclude the nodes, in addition to those excluded before.

Only a queued job can exclude nodes. Slurm begins to kill this run at the fourth command. The fifth is sent within
milliseconds of the fourth's answer. Without accounting the third command is left out. If it were sent, Slurm would
wait for a number from the database, and block all further changes of a job that has lost nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.platforms.slurm.slurm_commands import CommandOutput, CommandTrouble, SlurmCommands
from holdfast.platforms.slurm.text.job_restarts import excluded, requeue_refusal, shrunk, too_few
from holdfast.platforms.slurm.text.scontrol_records import Config, JobRecord, job, partition

if TYPE_CHECKING:
    from holdfast.platforms.slurm.text.allocation import SlurmJobIds
    from holdfast.reactor import News

    Done = Callable[[str, float], News]

#: How long a command is retried while slurmctld does not answer, in seconds.
PATIENCE_S = 120.0
LIMIT_S = 5.0
#: If SlurmdTimeout is at least this many seconds, holdfast removes lost nodes from the job before the requeue.
SLOW_S = 30.0
WAITING = frozenset({"PENDING", "COMPLETING", "REQUEUED", "CONFIGURING"})
#: How often to try to exclude nodes. Slurm refuses the change while the job's state changes.
_EXCLUDING = 3
_PAUSE_S = 0.3


class RequeueRequests:
    """Asks Slurm to requeue the job of this process."""

    def __init__(
        self,
        asking: SlurmCommands,
        ids: SlurmJobIds,
        say: Callable[[str], None],
        kill_s: Callable[[float], float | None],
        config: Callable[[], Config],
    ) -> None:
        """Prepare the requests. `ask` sends the first command.

        `asking`: runs Slurm commands.
        `ids`: ids of the job.
        `say`: prints a message of the owner.
        `kill_s(now)`: returns the seconds until Slurm kills this run; None if Slurm does not end the run.
        `config()`: returns Slurm's configuration.
        """
        self._asking = asking
        self._config = config
        self._ids = ids
        self._say = say
        self._kill_s = kill_s
        #: Whether this run has requested a restart.
        self.asked = False
        #: Whether Slurm has agreed to the restart and still has to accept the list of excluded nodes.
        self.busy = False

    def ask(self, reason: str, without: Sequence[str], done: Done) -> None:
        """Ask Slurm to restart the job without the nodes `without`. Later calls do nothing.

        `reason`: why the job is restarted. `done`: called once, with the reason for a refusal, or "".
        """
        if self.asked:
            return
        self.asked = True
        _Requeue(self, tuple(without), done).begin()

    def run(self, words: tuple[str, ...], done: Callable[[CommandOutput, float], News]) -> None:
        """Run a Slurm command with retries. The retries end before Slurm kills this run."""
        left_s = self._kill_s(self._asking.reactor.now())
        patience_s = PATIENCE_S if left_s is None else max(0.0, min(left_s, PATIENCE_S))
        self._asking.ask(words, done, limit_s=LIMIT_S, patience_s=patience_s)

    @property
    def ids(self) -> SlurmJobIds:
        return self._ids

    @property
    def shrinks(self) -> bool:
        """Whether to remove lost nodes from the job first, because Slurm would otherwise wait long for them."""
        config = self._config()
        return config.accounting and config.slurmd_timeout_s >= SLOW_S

    def say(self, text: str) -> None:
        self._say(text)

    def later(self, act: Callable[[float], News]) -> None:
        reactor = self._asking.reactor
        reactor.at(reactor.now() + _PAUSE_S, act)


class _Requeue:
    """Runs the Slurm commands for one requeue, one after another."""

    def __init__(self, requeues: RequeueRequests, without: tuple[str, ...], done: Done) -> None:
        self._requeues = requeues
        self._without = without
        self._done = done
        self._record: JobRecord | None = None
        #: How often the exclusion of the nodes was tried.
        self._tries = 0

    @property
    def _id(self) -> str:
        return self._requeues.ids.shown

    def begin(self) -> None:
        self._requeues.run(("scontrol", "show", "job", self._id), self._shown)

    def _shown(self, answer: CommandOutput, now: float) -> News:
        """Check with the job's Slurm record whether a requeue is needed and possible."""
        record = self._record = job(answer.out, self._requeues.ids.job) if answer.ok else None
        if record is None:
            return self._done(answer.said or f"Slurm does not know job {self._id} any more", now)
        if record.restarts > self._requeues.ids.restarts:
            # An operator, Slurm or an agent has already requeued the job. The job may even run again.
            return self._exclude(now) if record.state in WAITING else self._done("", now)
        if why := requeue_refusal(record, self._without):
            return self._done(why, now)
        if not self._without:
            return self._requeue(now)
        self._requeues.run(("scontrol", "show", "partition", record.partition), self._counted)
        return None

    def _counted(self, answer: CommandOutput, now: float) -> News:
        """Check with the partition's record whether enough nodes remain without the excluded ones."""
        assert self._record is not None, "it was shown before"
        record, found = self._record, partition(answer.out) if answer.ok else None
        if found is not None and (why := too_few(record, found, self._requeues.ids.nodes, self._without)):
            # Too few nodes would be left, so exclude none. A node that is down gets no job anyway, and the other nodes
            # may be healthy again by then.
            self._requeues.say(f"Slurm may give the job {', '.join(self._without)} again: {why}")
            self._without = ()
            return self._requeue(now)
        rest = shrunk(record, self._without) if self._requeues.shrinks else ""
        if not rest:
            return self._requeue(now)
        self._requeues.run(("scontrol", "update", f"jobid={self._id}", f"nodelist={rest}"), self._left)
        return None

    def _left(self, answer: CommandOutput, now: float) -> News:
        return self._requeue(now)  # if Slurm refused to remove the nodes, the job is COMPLETING for longer

    def _requeue(self, now: float) -> News:
        self._requeues.run(("scontrol", "requeue", self._id), self._requeued)
        return None

    def _requeued(self, answer: CommandOutput, now: float) -> News:
        if not answer.ok:
            if answer.trouble is CommandTrouble.LATE:
                # The job may already have been requeued by someone else.
                self._requeues.run(("scontrol", "show", "job", self._id), self._looked)
                return None
            return self._done(answer.said, now)
        return self._exclude(now)

    def _looked(self, answer: CommandOutput, now: float) -> News:
        record = job(answer.out, self._requeues.ids.job) if answer.ok else None
        if record is not None and record.restarts > self._requeues.ids.restarts:
            return self._exclude(now)
        return self._done("Slurm ends the job and does not start it again", now)

    def _exclude(self, now: float) -> News:
        """Exclude the nodes, because Slurm will restart the job."""
        self._leave_out(now)
        return self._done("", now)

    def _leave_out(self, now: float) -> News:
        names = excluded(self._record, self._without) if self._record is not None else ""
        self._requeues.busy = bool(names)
        if names:
            self._tries += 1
            self._requeues.run(("scontrol", "update", f"jobid={self._id}", f"excnodelist={names}"), self._excluded)
        return None

    def _excluded(self, answer: CommandOutput, now: float) -> News:
        if not answer.ok and self._tries < _EXCLUDING:
            self._requeues.later(self._leave_out)
            return None
        self._requeues.busy = False
        if not answer.ok:
            self._requeues.say(f"Slurm may give the job {', '.join(self._without)} again: {answer.said}")
        return None
