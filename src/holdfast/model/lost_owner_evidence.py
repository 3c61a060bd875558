"""The evidence about a job whose owner died without a report."""

from __future__ import annotations

from holdfast.model.evidence import MemoryKill
from holdfast.model.noun_base import Noun


class LostProcess(Noun, frozen=True, kw_only=True):
    """A process that workers had started, and that outlived their owner. `command`: empty where it is unknown."""

    pid: int
    command: str = ""


class LostOwner(Noun, frozen=True, kw_only=True):
    """The evidence about a job whose owner died without writing a report. Times are seconds since the epoch."""

    job: str
    host: str
    pid: int
    #: The moment of its death where the process that reaped it reported it, else of its last sign of life.
    died_at: float
    #: The number of the signal that ended it, where the process that reaped it reported it.
    signal: int | None = None
    #: The cause of that signal, where the control group has counted a memory kill meanwhile.
    memory_kill: MemoryKill | None = None
    #: The machine has been rebooted since the owner wrote where it runs.
    host_went_down: bool = False
    #: The number of the attempt; 0 where none had begun.
    attempt: int = 0
    #: `attempt 2, ranks 0 to 2 up, rank 3 failed`.
    last_known: str = ""
    #: The last events of the journal, each with its time.
    history: tuple[tuple[float, str], ...] = ()
    #: The path of its lock file.
    lock: str = ""
    #: Processes that outlived it in the job's control groups and were killed since.
    killed: tuple[LostProcess, ...] = ()
    #: Processes that are still alive.
    left: tuple[LostProcess, ...] = ()
    #: The owner had ended because the platform was to start the job again: the reason.
    queued: str = ""
    #: The user who removed it from the platform's queue, and why, where that is known.
    dropped: str = ""
    #: Local time minus UTC in seconds where the loss was found.
    utc_offset_s: float = 0.0

    def zone(self, _: float) -> float:
        """`utc_offset_s` for `in_words.clock`."""
        return self.utc_offset_s
