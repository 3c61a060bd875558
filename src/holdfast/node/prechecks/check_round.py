"""One round of a job's checks. The gate (`decide/`) decides which checks run; this module runs their processes.

Quick built-in checks share a process (a lane) and run one after another, because a fork costs more than such a check.
If one is slow, hangs or crashes, the checks after it move to another process. A foreign check always has its own
process.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import msgspec

from holdfast.decide.gate import Answered, CheckStep, Gate, GatePlan, Instruction, Kill, Progress, Start, TimePassed
from holdfast.launch.check_plan import CheckPlan
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckOutcome, ChecksTaken, Finding, Site
from holdfast.model.events import ChecksFinished
from holdfast.model.job_spec import JobSpec
from holdfast.node.prechecks.check_process import CheckProcess, check_body

#: If a check takes longer than this many seconds, the checks after it in the same process (its lane) move to another
#: process.
STALL_S = 0.25


@dataclass
class _Lane:
    """A lane: a process, and the checks that it runs one after another (by index in the plan)."""

    process: CheckProcess
    queue: list[int]
    #: The latest possible start of the running check in this lane (shared process).
    since: float
    #: Whether the checks after the running one have moved to another lane (process). This lane then ends with the
    #: running check.
    last: bool = False


class CheckRound:
    """One round of a job's checks. Poll `fileno()` until `next_wake()`, then call `handle_ready(now)`, until
    `result()`.

    `plan`: the checks. `site`: facts about this node. `order`: the owner's request; None for a round without an
    attempt, such as `holdfast check`. `keep_going`: run the other checks after a failure too.
    """

    def __init__(
        self,
        plan: CheckPlan,
        *,
        site: Site,
        now: float,
        order: RunChecks | None = None,
        job: JobSpec | None = None,
        keep_going: bool = False,
    ) -> None:
        self._plan = plan
        self._job, self._site = job, site
        self._attempt = order.attempt if order is not None else 1
        self._nodes = (order.nodes if order is not None else ()) or (site.node,)
        self._gate = Gate(
            GatePlan(
                attempt=self._attempt,
                round=order.round if order is not None else 1,
                nodes=self._nodes,
                steps=tuple(check.step for check in plan.checks),
                # End the round a moment before the owner's time limit.
                deadline_s=order.deadline_s - min(1.0, order.deadline_s / 10) if order is not None else None,
                keep_going=keep_going,
            ),
            now,
        )
        self._epoll = select.epoll()
        self._lanes: list[_Lane] = []
        self._tried: dict[int, int] = {}
        self._told: set[int] = set()
        self._follow(self._gate.start(now), now)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a check has answered, printed or ended."""
        return self._epoll.fileno()

    def next_wake(self) -> float | None:
        """Return when `handle_ready` is due without a readable descriptor; None if never, or after the round."""
        times = [lane.since + STALL_S for lane in self._lanes if len(lane.queue) > 1]
        if (wake := self._gate.next_wake()) is not None:
            times.append(wake)
        return min(times, default=None)

    def handle_ready(self, now: float) -> None:
        """Read the answers of checks. Start and end checks that are due now."""
        if self._epoll.closed:
            return
        self._epoll.poll(0)
        for lane in list(self._lanes):
            if lane in self._lanes:  # skip a lane (shared process) that another lane's answer has ended
                self._take(lane, now)
        for lane in list(self._lanes):
            if len(lane.queue) > 1 and lane.since + STALL_S <= now:
                behind, lane.queue[1:], lane.last = lane.queue[1:], [], True
                self._launch(behind, now)
        wake = self._gate.next_wake()
        if wake is not None and wake <= now:
            self._follow(self._gate.handle(TimePassed(), now), now)
        if self._gate.finished() is not None:
            self._close_lanes()

    def _take(self, lane: _Lane, now: float) -> None:
        lane.process.advance()
        answers: list[tuple[int, Finding]] = []
        for finding in lane.process.take():
            if lane.queue and not (lane.last and answers):
                answers.append((lane.queue.pop(0), finding))
                lane.since = now
        if lane.process.over and lane.queue:
            dead = lane.queue.pop(0)
            answers.append((dead, lane.process.died(self._plan.checks[dead].name, self._site)))
        if lane.process.over or (lane.last and not lane.queue):
            lane.process.close()
            self._lanes.remove(lane)
            if lane.queue:
                self._launch(lane.queue, now)
        for number, finding in answers:
            said = msgspec.structs.replace(finding, check=self._plan.checks[number].step.name)
            event = Answered(step=number, tried=self._tried[number], finding=said)
            self._follow(self._gate.handle(event, now), now)

    def result(self) -> ChecksFinished | None:
        """Return the result of the whole round; None while it runs."""
        return self._gate.finished()

    def progress(self) -> list[tuple[CheckStep, Progress, int, Finding | None]]:
        """Return for each check, in order: its step, its state, how often it ran and its last answer."""
        return self._gate.progress()

    def taken(self) -> ChecksTaken:
        """Return the state of the round, for the journal and for `holdfast show`."""
        return self._gate.taken()

    def waits(self) -> list[str]:
        """Return a message for each failed check that waits at least a second for its retry. Each check appears
        once.
        """
        found = []
        for number, (step, progress, _, finding) in enumerate(self._gate.progress()):
            if progress is not Progress.PAUSED or finding is None or step.interval_s < 1 or number in self._told:
                continue
            self._told.add(number)
            found.append(f"{step.name}: {finding.message}; retrying in {step.interval_s:g} s")
        return found

    def kill(self) -> None:
        """Kill every running check with its children. A round without a result never gets one."""
        self._close_lanes()
        self._epoll.close()

    def _close_lanes(self) -> None:
        for lane in self._lanes:
            lane.process.close()
        self._lanes.clear()

    def _follow(self, instructions: list[Instruction], now: float) -> None:
        starts: dict[str, list[int]] = {}
        kills: set[int] = set()
        for instruction in instructions:
            match instruction:
                case Start(step=number, tried=tried):
                    self._tried[number] = tried
                    lane = self._plan.checks[number].profile.lane
                    starts.setdefault(lane or f"its own: {number}", []).append(number)
                case Kill(step=number):
                    kills.add(number)
                case _:
                    assert_never(instruction)
        for running in [lane for lane in self._lanes if kills.intersection(lane.queue)]:
            running.process.close()
            self._lanes.remove(running)
            if others := [number for number in running.queue if number not in kills]:
                self._launch(others, now)
        for numbers in starts.values():
            self._launch(numbers, now)

    def _launch(self, numbers: list[int], now: float) -> None:
        work = [(self._plan.checks[number].profile.ref, self._plan.checks[number].params) for number in numbers]
        body = check_body(work, job=self._job, nodes=self._nodes, attempt=self._attempt, site=self._site)
        try:
            process = CheckProcess(body, self._epoll)
        except OSError as error:
            self._unmade(numbers, error, now)
            return
        self._lanes.append(_Lane(process, list(numbers), now))

    def _unmade(self, numbers: list[int], error: OSError, now: float) -> None:
        """Record "inconclusive" for the checks with these numbers, because their process could not be created."""
        node = self._site.node
        for number in numbers:
            finding = Finding(
                check=self._plan.checks[number].step.name,
                answer=CheckOutcome.INCONCLUSIVE,
                node=node,
                nodes=(node,),
                message=f"{node}: no process could be made for it: {error.strerror or error}",
                blame="unknown",
            )
            event = Answered(step=number, tried=self._tried[number], finding=finding)
            self._follow(self._gate.handle(event, now), now)


def run_round(
    round_: CheckRound, clock: Callable[[], float], say: Callable[[str], None] = lambda _: None
) -> ChecksFinished:
    """Run a round to its end, for callers without other work. An exception ends the round's checks.

    `say`: gets a line for each retry. `clock`: returns the time in seconds.
    """
    poll = select.poll()
    poll.register(round_.fileno(), select.POLLIN)
    try:
        while (answer := round_.result()) is None:
            wake = round_.next_wake()
            poll.poll(None if wake is None else max(0.0, (wake - clock()) * 1000 + 1))
            round_.handle_ready(clock())
            for line in round_.waits():
                say(line)
        return answer
    finally:
        round_.kill()
