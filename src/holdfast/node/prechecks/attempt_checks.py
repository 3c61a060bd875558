"""Runs the pre-checks before an attempt, unless they have just passed, and reserves ports for its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.act.rendezvous_ports import NoPort
from holdfast.errors import HoldfastError
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import ChecksTaken, CheckState, Site
from holdfast.model.events import ChecksFinished
from holdfast.model.evidence import CheckFailure
from holdfast.model.faults import DeviceStanding
from holdfast.model.job_spec import JobSpec
from holdfast.node import devices, prechecks

if TYPE_CHECKING:
    from holdfast.launch.check_plan import CheckPlan
    from holdfast.node.prechecks.check_round import CheckRound
    from holdfast.node.prechecks.prerequisites import Prerequisites
    from holdfast.reactor import Reactor


#: Shortest time between two progress updates of a round of checks, in seconds. Each update costs a journal row.
TOLD_EVERY_S = 0.2
#: A round of checks is not repeated within this many seconds after it has passed, because a recovery must be fast.
FRESH_S = 60.0


class AttemptChecks:
    """Runs the job's pre-checks each time that the owner requests them."""

    def __init__(
        self,
        plan: CheckPlan | None,
        spec: JobSpec,
        site: Site,
        reactor: Reactor,
        say: Callable[[str], None],
        reserve: Callable[[int, int], tuple[int, ...]],
        environment: Mapping[str, str],
    ) -> None:
        """Set up the checks of a job.

        `plan`: the checks, or None. `site`: facts about the node. `say`: prints a message. `reserve(attempt, count)`:
        reserves that many ports for an attempt; it raises NoPort. `environment`: the job's variables.
        """
        self._say = say
        self._reserve = reserve
        self._plan = plan
        self._spec = spec
        self._environment = environment
        self._prerequisites: Prerequisites | None = None
        self._site = site
        self._reactor = reactor
        self._round: CheckRound | None = None
        self._fd = -1
        self._passed_at: float | None = None
        self._passed: ChecksTaken | None = None
        self._order: RunChecks | None = None
        self._told: ChecksTaken | None = None
        self._tell_at = 0.0

    def begin(self, order: RunChecks, now: float) -> list[ev.Event]:
        """Start a round of checks. If no check must run, return its result (`ChecksFinished`) at once; otherwise the
        result comes later.
        """
        self.close()
        self._order, self._told, self._tell_at = order, None, now
        if self._plan is None or self._plan.disabled:
            return self._then(order, self._answer(order, CheckState.DISABLED), now)
        if self._passed_at is not None and now - self._passed_at < FRESH_S:
            return self._then(order, self._answer(order, CheckState.PASS, self._passed), now)
        self._round = prechecks.CheckRound(
            self._plan,
            site=replace(self._site, kept_out=self._kept_out(now)),
            now=now,
            order=order,
            job=self._spec,
        )
        self._fd = self._round.fileno()
        self._reactor.watch(self._fd, self._ready)
        return self.tick(now)

    def _kept_out(self, now: float) -> tuple[DeviceStanding, ...]:
        """Read the excluded devices here, because the check's process is a fork and must not use SQLite."""
        try:
            return devices.kept_out(self._site.home, self._site.node, now)
        except HoldfastError as error:
            self._say(f"what is known of this machine's devices cannot be read: {error.message}")
            return ()

    def distrust(self) -> None:
        """Repeat the checks before the next attempt even if they have just passed. Called after a failure of the
        machine.
        """
        self._passed_at = None

    def _ready(self, fd: int, now: float) -> list[ev.Event]:
        return self.tick(now)

    def next_wake(self) -> float | None:
        if self._round is None:
            return None
        wakes = (self._round.next_wake(), None if self._told == self._round.taken() else self._tell_at)
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> list[ev.Event]:
        if self._round is None:
            return []
        cause = self._order.cause if self._order is not None else ""
        self._round.handle_ready(now)
        answer = self._round.result()
        if answer is None:
            for line in self._round.waits():
                self._say(line)
            return self._moved(now)
        if answer.state == CheckState.PASS:
            self._passed_at, self._passed = now, answer.taken
        self.close()
        answer = replace(answer, cause=cause)
        return [answer] if self._order is None else self._then(self._order, answer, now)

    def _then(self, order: RunChecks, answer: ev.ChecksFinished, now: float) -> list[ev.Event]:
        """Go on after the checks: return the answer, or fetch the job's prerequisites to this node first."""
        answer = self._with_ports(order, answer)
        if not order.fetch_s or answer.state is CheckState.FAIL:
            return [answer]
        if self._prerequisites is None:
            self._prerequisites = prechecks.Prerequisites(
                self._spec, self._site.node, self._environment, self._reactor, self._say
            )
        if self._prerequisites.there:
            return [answer]
        return self._prerequisites.begin(answer, order.fetch_s, now)

    def close(self) -> None:
        if self._round is not None:
            self._reactor.forget(self._fd)
            self._round.kill()
            self._round = None
        if self._prerequisites is not None:
            self._prerequisites.close()

    def _moved(self, now: float) -> list[ev.Event]:
        """Return a progress update of a running round, for `holdfast show`."""
        assert self._round is not None and self._order is not None
        taken = self._round.taken()
        if taken == self._told or now < self._tell_at:
            return []
        self._told, self._tell_at = taken, now + TOLD_EVERY_S
        return [ev.ChecksMoved(attempt=self._order.attempt, round=self._order.round, taken=taken)]

    def _with_ports(self, order: RunChecks, answer: ev.ChecksFinished) -> ev.ChecksFinished:
        """Reserve the requested ports and add them to the answer. That comes after the checks, because forked checks
        would inherit the sockets.
        """
        if not order.ports or answer.state is CheckState.FAIL:
            return answer
        return with_ports(order, answer, self._site.node, self._reserve)

    @staticmethod
    def _answer(order: RunChecks, state: CheckState, before: ChecksTaken | None = None) -> ev.ChecksFinished:
        taken = ChecksTaken(state=state, reused=before is not None, checks=before.checks if before else ())
        return ev.ChecksFinished(attempt=order.attempt, round=order.round, state=state, taken=taken, cause=order.cause)


def with_ports(
    order: RunChecks, answer: ChecksFinished, node: str, reserve: Callable[[int, int], tuple[int, ...]]
) -> ChecksFinished:
    """Add the ports that this node has reserved to the checks' answer. If too few are free, the answer is a failure.
    `reserve(attempt, count)`: reserves that many ports for an attempt; it raises NoPort.
    """
    count = sum(order.ports.values())  # `order.ports` has the number of ports by label, for this node only
    try:
        return replace(answer, ports={node: reserve(order.attempt, count)})
    except NoPort as error:
        free = int(error.args[0])
    failure = CheckFailure(
        check="ports",
        message=f"{node}: the workers need {count} {'port' if count == 1 else 'ports'}, and {free} of them can be had",
        solution="Let --port-range be wider, let the roles have fewer `ports`, or stop what holds ports on that node "
        "(`holdfast check ports` there names it).",
        nodes=(node,),
        blame="platform",
        elsewhere=True,
    )
    return replace(answer, state=CheckState.FAIL, failure=failure, avoid=(node,))
