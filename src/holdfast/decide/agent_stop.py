"""A stop that an agent carries out: what was recorded about it, and when its next step is due."""

from __future__ import annotations

from signal import Signals

SIGTERM = int(Signals.SIGTERM)


class AgentStop:
    """The stop of one attempt; thrown away with it. Times are seconds on the agent's own clock."""

    def __init__(self) -> None:
        self.reason = ""
        self.grace_s = 0.0
        self.signal = SIGTERM
        """The first signal that the workers get."""
        self.reset()

    def reset(self) -> None:
        """Another attempt begins, and nothing of it is stopped."""
        self.intended = False
        """The stop was recorded before it was carried out: exits from here on count as stopped, never as failed."""
        self.killed = False
        self.kill_at: float | None = None
        """When SIGKILL follows."""
        self.term_at: float | None = None
        """Workers that listen may save until then; no worker has been signalled yet."""
        self.listening: set[int] | None = None
        """The ranks that get until then to save; None: not known yet."""
        self.again_at: float | None = None
        """When SIGTERM follows: the workers first got another signal."""

    def reaped(self) -> None:
        """The last process is gone: nothing is due any more."""
        self.kill_at = self.term_at = self.again_at = None

    def kill_now(self, reason: str, now: float) -> None:
        """Kill at once, without grace."""
        self.reason = reason
        self.kill_at, self.term_at, self.again_at = now, None, None

    def kill_by(self, at: float) -> None:
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def asked(self, now: float) -> None:
        """The first signal is sent now."""
        self.term_at = None
        self.kill_by(now + self.grace_s)
        self.again_at = None if self.signal == SIGTERM else now + self.grace_s / 2

    def has_left(self, rank: int) -> None:
        if self.listening is not None:
            self.listening.discard(rank)

    @property
    def waits_in_vain(self) -> bool:
        """All workers that wanted to save have exited: the time that is left helps no worker."""
        return self.term_at is not None and self.listening is not None and not self.listening
