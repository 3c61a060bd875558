"""Runs the sidecars of a node's workers, between the agent and its host (`act/host.py`).

It passes the agent's instructions to the host, and the host's facts to the agent. It delays two facts. "A worker is
prepared" waits until the hooks before the worker have succeeded and the daemons run. "All of an attempt is reaped"
waits until the attempt's daemons have exited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.act.termination import kill
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.phrases import Phrase
from holdfast.model.process_messages import (
    AllReaped,
    Fact,
    Instruction,
    SignalWorkers,
    StartWorker,
    WorkerPrepared,
    WorkerStartFailed,
)
from holdfast.model.sidecar_ends import SideFailure, SideKind
from holdfast.node.sidecars.attempt_sidecars import AttemptSidecars, SidecarContext

if TYPE_CHECKING:
    from holdfast.act.host import LocalHost
    from holdfast.model.actions import RunHooks
    from holdfast.node.sidecars.hook_run import HookRun
    from holdfast.reactor import News, Reactor

Flush = Callable[[Callable[[float], None], float], None]


class NodeSidecars:
    """A host of workers (`holdfast.act.host.Host`) that also runs sidecars.

    `around`: the settings that all sidecars share. `host`: the host of the workers. `learn`: passes facts to the agent.
    `tell`: sends an event to the owner. `flush(then, now)`: calls `then` when all output of the workers is in their
    files; None: the files are always complete.
    """

    def __init__(
        self,
        around: SidecarContext,
        host: LocalHost,
        reactor: Reactor,
        learn: Callable[[list[Fact], float], None],
        tell: Callable[[ev.Event], None],
        flush: Flush | None = None,
    ) -> None:
        self._around = around
        self._host = host
        self._reactor = reactor
        self._learn = learn
        self._tell = tell
        self._flush = flush
        #: The sidecars of the latest attempt on this node.
        self._one: AttemptSidecars | None = None
        self._after: HookRun | None = None
        #: The result of the hooks after the latest attempt.
        self._answer: ev.HooksFinished | None = None

    # ------------------------------------------------------------------------------------- methods of a host of workers

    def perform(self, instruction: Instruction, now: float) -> list[Fact]:
        match instruction:
            case StartWorker():
                self._begin(instruction, now)
            case SignalWorkers():
                if self._one is not None and self._one.attempt == instruction.attempt:
                    self._one.stop(hard=instruction.hard)
            case _:
                pass
        return self._pass(self._host.perform(instruction, now), now)

    def processes(self) -> list[int]:
        return self._host.processes()

    def learn(self, facts: list[Fact], now: float) -> None:
        """Pass facts about processes to the agent, unless an instruction returns them."""
        if facts := self._pass(facts, now):
            self._learn(facts, now)

    def failures(self, attempt: int) -> tuple[SideFailure, ...]:
        """Return the failures of sidecars that count as failures of the attempt."""
        one = self._one
        return tuple(one.failures) if one is not None and one.attempt == attempt else ()

    def close(self) -> None:
        """Close all sidecars, when no process of the job is left."""
        if self._after is not None:
            self._after.close()
        if self._one is not None:
            self._one.close()
        if self._around.ssh_server is not None:
            self._around.ssh_server.close()

    # -------------------------------------------------------------------------- methods for the sidecars of one attempt

    def _begin(self, order: StartWorker, now: float) -> None:
        one = self._one
        if one is None or one.attempt != order.attempt:
            if self._after is not None and not self._after.over:
                self._after.kill()  # kill the hooks after the old attempt, because a new attempt starts
            self._after = self._answer = None
            one = self._one = AttemptSidecars(
                self._around, order.attempt, opened=self._opened, failed=self._failed, ended=self._ended
            )
            # Begin the sidecars after the present instruction, because it starts more workers of this node.
            self._reactor.at(now, one.begin)
        one.orders.append(order)

    def _pass(self, facts: list[Fact], now: float) -> list[Fact]:
        """Return the facts about processes that the agent may get now. Delay those that must wait for sidecars."""
        one, passed = self._one, []
        for fact in facts:
            if isinstance(fact, WorkerPrepared) and one is not None and fact.attempt == one.attempt:
                one.ready(fact.rank, fact.pid)
            if one is None:
                passed.append(fact)
            elif isinstance(fact, WorkerPrepared) and fact.attempt == one.attempt and not one.open:
                one.held.append(fact)
            elif isinstance(fact, AllReaped) and fact.attempt == one.attempt and not one.over:
                one.over = not one.alive
                passed += [fact] if one.over else []
            else:
                passed.append(fact)
        if one is not None and one.stopping and not one.leaving and not self._host.workers.alive:
            one.leaving = True
            self._workers_ended(one, now)
        return passed

    def _workers_ended(self, one: AttemptSidecars, now: float) -> None:
        if self._flush is None:
            one.workers_ended(now)
        else:
            # A daemon may upload the logs, so wait until they are complete.
            self._flush(one.workers_ended, now)

    def _opened(self, now: float) -> News:
        assert self._one is not None, "it has opened"
        held, self._one.held = self._one.held, []
        self._learn(held, now)
        return None

    def _ended(self, now: float) -> News:
        """Kill the processes that hooks and daemons have left, because the last daemon has exited. They are now
        children of this process.
        """
        one = self._one
        assert one is not None, "it has ended"
        if not one.over and not self._host.workers.alive:
            sweep = SignalWorkers(attempt=one.attempt, hard=True, reason="what daemons and hooks have left behind")
            self.learn(self._host.perform(sweep, now), now)
        return None

    def _failed(self, failure: SideFailure, now: float) -> News:
        """End the attempt, because a hook before the workers or a required daemon has failed."""
        one = self._one
        assert one is not None, "it has failed"
        if not one.open:
            rank = one.first_rank
            self._learn([WorkerStartFailed(attempt=one.attempt, rank=rank, reason=failure.sentence)], now)
            return None
        request = StopRequest(
            reason=failure.sentence,
            solution=f"Read its output: {failure.log}",
            source=StopSource.DAEMON,
            component=failure.name,
            phrase=Phrase.HOOK_FAILED if failure.kind is SideKind.HOOK else Phrase.DAEMON_FAILED,
            at=now,
            final=False,
        )
        self._tell(ev.StopRequested(request=request))
        return None

    # --------------------------------------------------------------------------- methods for the hooks after an attempt

    def follow(self, order: RunHooks, now: float) -> None:
        """Run the hooks after the attempt once it is explained. Send their result to the owner."""
        one = self._one
        if one is None or one.attempt != order.attempt:
            self._tell(ev.HooksFinished(attempt=order.attempt, cause=order.cause))
        elif self._answer is not None:
            self._tell(self._answer)
        elif self._after is not None:
            self._hurry(self._after, order, now)
        elif order.stop:
            self._done(order, (), now)
        else:
            self._after = one.after(order.end, lambda failures, now: self._done(order, failures, now))
            if order.within_s is not None:
                self._after.kill_at(now + order.within_s)
            self._after.begin(now)

    def _hurry(self, run: HookRun, order: RunHooks, now: float) -> None:
        if order.within_s is not None:
            run.kill_at(now + order.within_s)
        if order.stop:
            run.stop()

    def _done(self, order: RunHooks, failures: tuple[SideFailure, ...], now: float) -> None:
        one = self._one
        if one is None or one.attempt != order.attempt:
            return  # drop the result, because another attempt has begun meanwhile
        # Kill the processes that the finished hooks have left, so that none runs on into the next attempt.
        kill(self._host.processes())
        self._answer = ev.HooksFinished(attempt=order.attempt, failures=failures, cause=order.cause)
        self._tell(self._answer)
