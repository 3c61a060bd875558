"""What an agent and the machine under it say to each other: facts about processes in, instructions out."""

from __future__ import annotations

from holdfast.model.base import Message
from holdfast.model.commands import Meeting, Peers, Report
from holdfast.model.exits import WorkerExit
from holdfast.model.jobs import GangShape, Seat


class WorkerPrepared(Message, frozen=True, kw_only=True):
    """The process exists and waits for its go."""

    attempt: int
    rank: int
    pid: int
    warm: bool = False
    """It was forked from a process that had done its imports."""


class WorkerUp(Message, frozen=True, kw_only=True):
    """The process runs the user's program."""

    attempt: int
    rank: int


class WorkerExited(Message, frozen=True, kw_only=True):
    """The process ended and was reaped."""

    exit: WorkerExit


class WorkerStartFailed(Message, frozen=True, kw_only=True):
    """No process could be made, or it could not become the user's program."""

    attempt: int
    rank: int
    reason: str


class WorkersNotified(Message, frozen=True, kw_only=True):
    """The workers know that they are to save and leave; `listening`: the ranks that had said that they want to know."""

    attempt: int
    listening: tuple[int, ...]


class AllReaped(Message, frozen=True, kw_only=True):
    """No process of this attempt is left, grandchildren included."""

    attempt: int


Fact = WorkerPrepared | WorkerUp | WorkerExited | WorkerStartFailed | WorkersNotified | AllReaped


class StartWorker(Message, frozen=True, kw_only=True):
    """Make one worker ready and let it wait."""

    attempt: int
    seat: Seat
    shape: GangShape = GangShape()
    meeting: Meeting | None = None
    """Where the workers meet; None: the host chooses."""
    peers: Peers | None = None
    """Where its peers are; None: its job does not ask for it."""


class ReleaseWorker(Message, frozen=True, kw_only=True):
    """Let a prepared worker run."""

    attempt: int
    rank: int


class NotifyWorkers(Message, frozen=True, kw_only=True):
    """Tell the workers to save and leave by themselves; no process is killed. Answer with `WorkersNotified`."""

    attempt: int
    reason: str
    save_s: float


class SignalWorkers(Message, frozen=True, kw_only=True):
    """Ask the processes of the attempt to leave, or end them (`hard`, SIGKILL); answer with `AllReaped`."""

    attempt: int
    hard: bool
    reason: str
    signal: int = 15
    """The one to ask with. 0: none, since every process of the job has got one from outside."""


class SendReport(Message, frozen=True, kw_only=True):
    """Tell the owner."""

    report: Report


Instruction = StartWorker | ReleaseWorker | NotifyWorkers | SignalWorkers | SendReport
