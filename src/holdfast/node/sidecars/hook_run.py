"""Runs a list of hooks one after another, before or after an attempt's workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import BadUsage
from holdfast.model.runtime_plan import Hook, OnFailure
from holdfast.model.sidecar_ends import SideFailure, SideKind
from holdfast.node.sidecars.sidecar_process import not_started, why

if TYPE_CHECKING:
    from holdfast.node.sidecars.sidecar_process import SidecarEnd, SidecarProcess
    from holdfast.reactor import DueCall, News, Reactor


class StartSidecar(Protocol):
    """Starts a process beside the workers. Raises OSError if no process can be created."""

    def __call__(
        self, name: str, hook: Hook, ended: Callable[[SidecarProcess, SidecarEnd, float], News]
    ) -> SidecarProcess: ...


class HookRun:
    """Runs hooks in order. `done(failures, now)`: called after the last hook. A failure that the hook's options ignore
    is only printed.
    """

    def __init__(
        self,
        hooks: Iterable[tuple[str, Hook]],
        start: StartSidecar,
        done: Callable[[tuple[SideFailure, ...], float], News],
        reactor: Reactor,
        say: Callable[[str], None],
        *,
        node: str,
        go_on: bool,
    ) -> None:
        """Prepare to run these hooks.

        `hooks`: names and hooks, in order. `start`: starts a hook. `say`: prints a message. `go_on`: continue after a
        failure. `node`: this node's name in messages about a failure.
        """
        self._left = deque(hooks)
        self._start = start
        self._done = done
        self._reactor = reactor
        self._say = say
        self._node = node
        self._go_on = go_on
        self._side: SidecarProcess | None = None
        self._limit: DueCall | None = None
        self._deadline: DueCall | None = None
        self._late = self._stopped = False
        self.over = False
        self.failures: list[SideFailure] = []

    def stop(self) -> None:
        """Ask the running hook to exit, and start no more. A stopped hook does not count as failed."""
        self._stopped = True
        if self._side is not None:
            self._side.terminate()

    def kill(self) -> None:
        """Kill the running hook, and start no more hooks."""
        self._stopped = True
        if self._side is not None:
            self._side.kill()

    def kill_at(self, when: float) -> None:
        """Kill the running hook at this time, in seconds, unless it has ended before."""
        if self._deadline is not None:
            self._deadline.close()
        self._deadline = self._reactor.at(when, self._out_of_time)

    def close(self) -> None:
        if self._side is not None:
            self._side.close()

    # -------------------------------------------------------------------------- methods that run one hook after another

    def begin(self, now: float) -> News:
        """Run the next hook. When none is left, call `done`."""
        if self._stopped or not self._left or (self.failures and not self._go_on):
            self.over = True
            if self._deadline is not None:
                self._deadline.close()
            return self._done(tuple(self.failures), now)
        name, hook = self._left.popleft()
        self._late = False
        try:
            self._side = self._start(name, hook, lambda side, end, now: self._ended(name, hook, side, end, now))
        except (OSError, BadUsage) as error:
            self._failed(hook, self._failure(name, hook, not_started(why(error))))
            return self.begin(now)
        self._limit = self._reactor.at(now + hook.limit_s, self._overdue)
        return None

    def _overdue(self, now: float) -> None:
        if self._side is not None:
            self._late = True
            self._side.kill()

    def _out_of_time(self, now: float) -> None:
        self.kill()

    def _ended(self, name: str, hook: Hook, side: SidecarProcess, end: SidecarEnd, now: float) -> News:
        self._side = None
        if self._limit is not None:
            self._limit.close()
        if not self._stopped and (self._late or not end.ok):
            self._failed(hook, self._failure(name, hook, end, str(side.log)))
        return self.begin(now)

    def _failure(self, name: str, hook: Hook, end: SidecarEnd, log: str = "") -> SideFailure:
        return SideFailure(
            kind=SideKind.HOOK,
            name=name,
            node=self._node,
            when=hook.when,
            exit_code=end.exit_code,
            signal=end.signal,
            limit_s=hook.limit_s if self._late else None,
            trouble=end.trouble,
            last_words=end.last_words,
            log=log,
        )

    def _failed(self, hook: Hook, failure: SideFailure) -> None:
        if hook.on_failure is OnFailure.IGNORE:
            self._say(f"{failure.sentence}; the job goes on without it (on_failure: ignore)")
        else:
            self.failures.append(failure)
