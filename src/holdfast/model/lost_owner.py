"""The evidence about a job whose supervisor died without a report."""

from __future__ import annotations

from holdfast.model.base import Noun
from holdfast.model.evidence import MemoryKill


class LostProcess(Noun, frozen=True, kw_only=True):
    """A process that workers had started, and that outlived their supervisor. `command`: empty where it is unknown."""

    pid: int
    command: str = ""


class LostOwner(Noun, frozen=True, kw_only=True):
    """What was found of a job whose supervisor died without writing a report. Times are seconds since the epoch."""

    job: str
    host: str
    pid: int
    died_at: float
    """The moment of its death where the process that reaped it says so, else of its last sign of life."""
    signal: int | None = None
    """The number of the signal that ended it, where the process that reaped it says so."""
    memory_kill: MemoryKill | None = None
    """What that signal was, where the control group has counted a memory kill meanwhile."""
    host_went_down: bool = False
    """The machine has been started anew since the supervisor wrote where it runs."""
    attempt: int = 0
    """0 where no attempt had begun."""
    last_known: str = ""
    """`attempt 2, ranks 0 to 2 up, rank 3 failed`."""
    history: tuple[tuple[float, str], ...] = ()
    """The last events of the journal: when, and what."""
    lock: str = ""
    """The path of its lock file."""
    killed: tuple[LostProcess, ...] = ()
    """What lived on in the job's control groups and was killed since."""
    left: tuple[LostProcess, ...] = ()
    """What lives still."""
    queued: str = ""
    """Its supervisor had ended, for the platform was to start the job again: why."""
    dropped: str = ""
    """Who took it out of the platform's queue, and why, where that is known."""
    utc_offset_s: float = 0.0
    """Local time minus UTC where the loss was found."""

    def zone(self, _: float) -> float:
        """`utc_offset_s` for `in_words.clock`."""
        return self.utc_offset_s
