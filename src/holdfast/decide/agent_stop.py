"""The agent's stop of an attempt: its state, and the times of its next steps."""

from __future__ import annotations

from signal import Signals

SIGTERM = int(Signals.SIGTERM)


class AgentStop:
    """The stop of the agent's present attempt. Times are seconds on the agent's own clock."""

    def __init__(self) -> None:
        self.reason = ""
        self.grace_s = 0.0
        #: The first signal to the workers.
        self.signal = SIGTERM
        self.reset()

    def reset(self) -> None:
        """Clear the state, because another attempt begins."""
        #: The stop is recorded: from now on exits count as stopped, never as failed.
        self.intended = False
        self.killed = False
        #: When SIGKILL follows; None: no SIGKILL is due.
        self.kill_at: float | None = None
        #: When the first signal follows; until then workers that listen may save. None: no first signal is due.
        self.term_at: float | None = None
        #: The live ranks that listen and may save until `term_at`; None: not known yet.
        self.listening: set[int] | None = None
        #: When SIGTERM follows, if the first signal was another one; else None.
        self.again_at: float | None = None

    def reaped(self) -> None:
        """Clear all times: the last process is gone."""
        self.kill_at = self.term_at = self.again_at = None

    def kill_now(self, reason: str, now: float) -> None:
        """Kill at once, without a grace period."""
        self.reason = reason
        self.kill_at, self.term_at, self.again_at = now, None, None

    def kill_by(self, at: float) -> None:
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def asked(self, now: float) -> None:
        """Record that the first signal is sent now, and set the times of the next ones."""
        self.term_at = None
        self.kill_by(now + self.grace_s)
        self.again_at = None if self.signal == SIGTERM else now + self.grace_s / 2

    def has_left(self, rank: int) -> None:
        if self.listening is not None:
            self.listening.discard(rank)

    @property
    def waits_in_vain(self) -> bool:
        """Whether all workers that listen have exited, so that the rest of the time to save is useless."""
        return self.term_at is not None and self.listening is not None and not self.listening
