"""The evidence about a job whose owner died without a report."""

from __future__ import annotations

from holdfast.model.evidence import MemoryKill
from holdfast.model.noun_base import Noun


class LostProcess(Noun, frozen=True, kw_only=True):
    """A process of the job that outlived the owner. `command`: its command line; empty if unknown."""

    pid: int
    command: str = ""


class LostOwner(Noun, frozen=True, kw_only=True):
    """The evidence about a job whose owner died without writing a report. Times are seconds since the epoch."""

    job: str
    host: str
    pid: int
    #: When the owner died, if the process that reaped it reported that; else its last sign of life.
    died_at: float
    #: The number of the signal that ended the owner, if the process that reaped it reported it.
    signal: int | None = None
    #: The memory kill that the control group has counted meanwhile: the cause of the signal.
    memory_kill: MemoryKill | None = None
    #: Whether the machine was rebooted since the owner recorded its process.
    host_went_down: bool = False
    #: The number of the attempt; 0: none had begun.
    attempt: int = 0
    #: The last known state in words: `attempt 2, ranks 0 to 2 up, rank 3 failed`.
    last_known: str = ""
    #: The last events of the journal, each with its time.
    history: tuple[tuple[float, str], ...] = ()
    #: The path of the owner's lock file.
    lock: str = ""
    #: Processes that outlived the owner in the job's control groups, and were killed since.
    killed: tuple[LostProcess, ...] = ()
    #: Processes of the job that are still alive.
    left: tuple[LostProcess, ...] = ()
    #: Why the platform was to start the job again, if the owner had ended for that; else empty.
    queued: str = ""
    #: The user who removed the job from the platform's queue, and the reason; empty if unknown.
    dropped: str = ""
    #: Local time minus UTC in seconds, on the machine that found the loss.
    utc_offset_s: float = 0.0

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, as a `Zone` for `human_format.clock`."""
        return self.utc_offset_s
