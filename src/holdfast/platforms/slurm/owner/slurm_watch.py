"""The owner's watch over a Slurm job. It passes each event to the object that handles the event's subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.platforms.job_watch import JobWatch
from holdfast.platforms.slurm.owner.batch_script_warning import BatchScript
from holdfast.platforms.slurm.owner.job_comment import JobComment
from holdfast.platforms.slurm.owner.requeue_requests import RequeueRequests
from holdfast.platforms.slurm.owner.slurm_nodes import LostNodes, NodeDrain
from holdfast.platforms.slurm.owner.slurm_signals import SlurmSignals
from holdfast.platforms.slurm.slurm_commands import SlurmCommands
from holdfast.platforms.slurm.text.allocation import SlurmJobIds, ids_of

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.job_spec import JobSpec
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace


def watch(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> SlurmWatch | None:
    """Return the watch over this process's job. Return None if Slurm's variables name no job, or cannot be parsed."""
    ids = ids_of(environment)
    return SlurmWatch(spec, SlurmCommands(reactor, environment), ids, say) if ids is not None else None


class SlurmWatch(JobWatch):
    """Watches one Slurm job.

    Some methods of `JobWatch` are not needed: an allocation has its nodes from the start, each agent's environment has
    the topology labels, and the journal is on a file system that all runs of the job share.
    """

    def __init__(self, spec: JobSpec, asking: SlurmCommands, ids: SlurmJobIds, say: Callable[[str], None]) -> None:
        """Prepare the watch. `begin` starts it.

        `spec`: the job.
        `asking`: runs Slurm commands.
        `ids`: ids of the job in Slurm.
        `say`: prints a message of the owner.
        """
        super().__init__(asking.reactor)
        self._ids = ids
        self._asking = asking
        self._say = say
        self._holding = NodeDrain(asking, say)
        self._comment = JobComment(asking, ids.job, say) if spec.job_comment else None
        self._lost = LostNodes(asking, ids, say)
        self._requeues = RequeueRequests(asking, ids, say, self._kill_s, lambda: self._signals.config)
        self._script = BatchScript(asking, ids, say, many=spec.nodes.many)
        self._signals = SlurmSignals(
            asking,
            ids,
            spec.timers.grace_s,
            say,
            lambda: self._requeues.asked,
            at_limit=spec.requeue.at_time_limit,
        )

    def _kill_s(self, now: float) -> float | None:
        """Return the seconds until Slurm kills this run of the job.

        Return None if Slurm has not begun to end the run.
        """
        ends_at = self._signals.ends_at
        return None if ends_at is None else ends_at - now

    @property
    def asking(self) -> bool:
        return self._signals.asking or self._lost.asking

    @property
    def holding(self) -> bool:
        return self._holding.busy

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        self._script.begin()
        return self._signals.begin(now)

    def signalled(self, number: int, node: str, now: float) -> News:
        return self._signals.signalled(number, node, now)

    def felled(self, since: float) -> None:
        self._signals.felled(since)

    def lost(self, node: str, attempt: int, now: float) -> News:
        self._lost.ask(node, attempt)
        return None

    def broken_off(self, attempt: int) -> None:
        self._lost.ask_of_job(attempt)

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        self._requeues.ask(reason, without, done)

    def hold(self, node: str, reason: str, attempt: int) -> None:
        self._holding.hold(node, reason, attempt)

    def recorded(self, record: AttemptRecord) -> None:
        if self._comment is not None:
            self._comment.attempt(record)

    def finished(self, report: JobReport) -> None:
        if self._comment is not None:
            self._comment.finished(report)

    @property
    def writing(self) -> bool:
        return self._requeues.busy or (self._comment is not None and self._comment.busy)

    def close(self) -> None:
        self._script.close()
        self._signals.close()
        self._asking.close()
