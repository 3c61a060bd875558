"""Runs a daemon of an attempt. It restarts the daemon a limited number of times, and stops it after the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import BadUsage
from holdfast.model.sidecar_ends import SideFailure, SideKind
from holdfast.node.sidecars.sidecar_process import not_started, why

if TYPE_CHECKING:
    from holdfast.model.runtime_plan import Daemon
    from holdfast.node.sidecars.sidecar_process import SidecarEnd, SidecarProcess
    from holdfast.reactor import DueCall, News, Reactor

#: Seconds before a daemon's first restart. The pause doubles before each further restart.
BACKOFF_S = 0.5
BACKOFF_CAP_S = 30.0


#: A function that starts a daemon. Its arguments are called when the daemon has ended, and when its program runs.
#: Raises OSError if no process can be created.
Start = Callable[["Callable[[SidecarProcess, SidecarEnd, float], News]", "Callable[[float], News]"], "SidecarProcess"]


class DaemonOwner(Protocol):
    """The attempt of a daemon. The daemon calls these methods; each returns the events that follow."""

    def settled(self, now: float) -> News:
        """Called once, when the daemon runs for the first time or is given up."""
        ...

    def gone(self, run: DaemonRun, failure: SideFailure, now: float) -> News:
        """Called when the daemon has ended for good."""
        ...

    def left(self, now: float) -> News:
        """Called when the daemon has exited on request."""
        ...


class DaemonRun:
    """Runs one daemon of an attempt.

    `start`: starts its process. `owner`: the attempt. `node`: this node's name in messages. `kind`: the kind of sidecar
    in a failure's report.
    """

    def __init__(
        self,
        daemon: Daemon,
        start: Start,
        reactor: Reactor,
        *,
        owner: DaemonOwner,
        node: str,
        kind: SideKind = SideKind.DAEMON,
    ) -> None:
        self.daemon = daemon
        self._start = start
        self._reactor = reactor
        self._node = node
        self._kind = kind
        self._owner = owner
        self._side: SidecarProcess | None = None
        self._again: DueCall | None = None
        self._starts = 0
        self._ending = False
        self.settled = False

    @property
    def alive(self) -> bool:
        """Return whether the daemon has a process now."""
        return self._side is not None

    def begin(self, now: float) -> News:
        """Start the daemon, unless it was given up."""
        return None if self.settled else self._begin(now)

    def give_up(self, trouble: str, now: float) -> News:
        """Report the daemon as failed without a start, because it cannot run."""
        return self._over(self._failure(not_started(trouble)), now)

    def terminate(self) -> None:
        """Ask the daemon to exit, because the attempt's workers have ended."""
        self._end()
        if self._side is not None:
            self._side.terminate()

    def kill(self) -> None:
        self._end()
        if self._side is not None:
            self._side.kill()

    def close(self) -> None:
        self._end()
        if self._side is not None:
            self._side.close()

    # ------------------------------------------------------------------------------------------ private methods

    def _end(self) -> None:
        self._ending = True
        if self._again is not None:
            self._again.close()
            self._again = None

    def _begin(self, now: float) -> News:
        self._again = None
        self._starts += 1
        try:
            self._side = self._start(self._ended, self._settle)
        except (OSError, BadUsage) as error:
            return self._over(self._failure(not_started(why(error))), now)
        return None

    def _settle(self, now: float) -> News:
        if self.settled:
            return None
        self.settled = True
        return self._owner.settled(now)

    def _ended(self, side: SidecarProcess, end: SidecarEnd, now: float) -> News:
        self._side = None
        if self._ending:
            return self._owner.left(now)
        if not end.trouble and self._starts <= self.daemon.restarts:
            wait_s = min(BACKOFF_CAP_S, BACKOFF_S * 2 ** (self._starts - 1))
            self._again = self._reactor.at(now + wait_s, self._begin)
            return self._settle(now)
        return self._over(self._failure(end, str(side.log)), now)

    def _over(self, failure: SideFailure, now: float) -> News:
        news = [*(self._owner.gone(self, failure, now) or ())]
        return [*news, *(self._settle(now) or ())]

    def _failure(self, end: SidecarEnd, log: str = "") -> SideFailure:
        return SideFailure(
            kind=self._kind,
            name=self.daemon.name,
            node=self._node,
            exit_code=end.exit_code,
            signal=end.signal,
            trouble=end.trouble,
            starts=self._starts,
            last_words=end.last_words,
            log=log,
        )
