"""The messages between an agent and the host of its workers' processes: the host's facts, and the agent's
instructions.
"""

from __future__ import annotations

import msgspec

from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import Meeting, Peers, Report
from holdfast.model.job_spec import GangShape, Placement
from holdfast.model.noun_base import Message


class WorkerPrepared(Message, frozen=True, kw_only=True):
    """The worker's process exists and waits for `ReleaseWorker`."""

    attempt: int
    rank: int
    pid: int
    #: Whether the worker is a fork of a prewarmed process with its imports done.
    warm: bool = False


class WorkerUp(Message, frozen=True, kw_only=True):
    """The worker's process now runs the user's program."""

    attempt: int
    rank: int


class WorkerExited(Message, frozen=True, kw_only=True):
    """The worker's process has ended and was reaped."""

    exit: WorkerExit


class WorkerStartFailed(Message, frozen=True, kw_only=True):
    """The worker's process could not be created, or could not run the user's program."""

    attempt: int
    rank: int
    reason: str


class WorkersNotified(Message, frozen=True, kw_only=True):
    """The workers got the notice to save and exit. `listening`: the ranks that had registered for it."""

    attempt: int
    listening: tuple[int, ...]


class AllReaped(Message, frozen=True, kw_only=True):
    """No process of this attempt is alive on the node, not even a descendant."""

    attempt: int


Fact = WorkerPrepared | WorkerUp | WorkerExited | WorkerStartFailed | WorkersNotified | AllReaped


class StartWorker(Message, frozen=True, kw_only=True):
    """Prepare one worker; it then waits for `ReleaseWorker`."""

    attempt: int
    placement: Placement = msgspec.field(name="seat")
    shape: GangShape = GangShape()
    #: The rendezvous address of the workers; None: the host of the processes chooses one.
    meeting: Meeting | None = None
    #: The addresses of the worker's peers; None: the job does not use them.
    peers: Peers | None = None


class ReleaseWorker(Message, frozen=True, kw_only=True):
    """Let a prepared worker run the user's program."""

    attempt: int
    rank: int


class NotifyWorkers(Message, frozen=True, kw_only=True):
    """Notify the workers to save and exit. No process is killed. Answer with `WorkersNotified`."""

    attempt: int
    reason: str
    save_s: float


class SignalWorkers(Message, frozen=True, kw_only=True):
    """Send the attempt's processes a signal to exit, or SIGKILL (`hard`). Answer with `AllReaped`."""

    attempt: int
    hard: bool
    reason: str
    #: The signal to send; 0: none, because every process of the job has already got one from outside.
    signal: int = 15
    #: Seconds until SIGTERM for processes that an exited worker left running. None: they get it now, because a stop of
    #: the job was requested.
    leftover_s: float | None = None


class SendReport(Message, frozen=True, kw_only=True):
    """Send the agent's report to the owner."""

    report: Report


Instruction = StartWorker | ReleaseWorker | NotifyWorkers | SignalWorkers | SendReport
