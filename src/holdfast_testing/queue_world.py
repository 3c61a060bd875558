"""One simulated queue: a core that follows its plans, and the processes, people and devices around it.

The clock jumps from event to event. The core keeps records as the real one does: when it dies, the next one has the
records and learns of what has happened meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Protocol, assert_never

from msgspec.structs import replace

from holdfast.decide.queue.queue_limits import refusal
from holdfast.decide.queue.queue_model import DeviceState, FairShare, Priority, RunningJob, WaitingJob
from holdfast.decide.queue.queue_order import aged, charged_until
from holdfast.decide.queue.queue_plan import Plan, Start, plan
from holdfast_testing.queue_history import CALM_S, History, Trouble, Work

#: Simulated seconds after a reboot began.
_REBOOT_S = 90.0
_TICK_S = 1e-6
#: Seconds after which a user gives up a job for which others leave.
_GIVES_UP_S = 0.4


class Judge(Protocol):
    """What looks at each plan before it is followed."""

    def judge(self, world: QueueWorld, made: Plan) -> None: ...

    def refused(self, world: QueueWorld, job: WaitingJob, words: str | None) -> None: ...

    def core_died(self, world: QueueWorld, before: Plan, after: Plan) -> None: ...

    def at_rest(self, world: QueueWorld) -> None: ...


class QueueWorld:
    def __init__(self, history: History, judge: Judge, *, tracing: bool = False) -> None:
        self.history = history
        self.machine, self.policy = history.machine, history.policy
        self.now = 0.0
        self.shares = FairShare(half_life_s=self.policy.half_life_s)
        self.waiting: dict[str, WaitingJob] = {}
        self.running: dict[str, RunningJob] = {}
        self.ended: dict[str, str] = {}
        self.work = {work.job.id: work for work in history.work}
        #: The waiting job behind each running one, as it stood when it started.
        self.places: dict[str, WaitingJob] = {}
        #: The jobs that left for a job.
        self.left_for: dict[str, list[str]] = {}
        #: Counts what may move a reservation later: faults, foreign use, a core that is away.
        self.unrest = 0
        #: Jobs whose class a person has changed.
        self.meddled: set[str] = set()
        self.looks = 0
        self.tracing, self.story = tracing, list[str]()
        self._judge = judge
        self._alive = True
        self._charged = 0.0
        self._late: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._starts = dict[str, int]()
        self._woken = -1.0
        self._gave_up = set[str]()
        for work in history.work:
            self._at(work.job.submitted_at, self._submit, work)
        for at, trouble, choice in history.troubles:
            self._at(at, self._trouble, trouble, choice)
        self._at(CALM_S, self._calm)

    def run(self) -> None:
        """Run until nothing happens any more. Raises `Violation` if an invariant is broken."""
        queue = self._queue
        while queue:
            when, _, act, args = heapq.heappop(queue)
            self.now = max(self.now, when)
            self._happen(act, args)
            if not queue or queue[0][0] > self.now:
                self._look()
            if not self.waiting and not self.running and self.now > CALM_S:
                break
        queue.clear()
        self._judge.at_rest(self)

    @property
    def only_wakes(self) -> bool:
        """Return whether nothing is to come but looks at the queue."""
        return all(act == self._wake for _, _, act, _ in self._queue)

    def _at(self, when: float, act: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._count), act, args))

    def _happen(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Let something happen. Without a core it waits for the next one, whoever did it."""
        if self._alive or act == self._calm or (act == self._trouble and args[0] is Trouble.CORE_RETURNS):
            act(*args)
        else:
            self._late.append((act, args))

    def _tell(self, text: str) -> None:
        if self.tracing:
            self.story.append(f"{self.now:8.1f} s  {text}")

    # The core

    def look(self) -> Plan:
        return plan(self.now, self.machine, self.running.values(), self.waiting.values(), self.policy, self.shares)

    def _look(self) -> None:
        if not self._alive:
            return
        self.looks += 1
        self.shares = charged_until(self.now, self._charged, self.machine, self.running.values(), self.shares)
        self._charged = self.now
        if not self.waiting:
            return
        made = self.look()
        if self.tracing:
            self._tell_plan(made)
        self._judge.judge(self, made)
        self._follow(made)

    def _follow(self, made: Plan) -> None:
        reserved = {each.job: each for each in made.reservations}
        for job in self.waiting.values():
            if job.reservation != reserved.get(job.id):
                self.waiting[job.id] = replace(job, reservation=reserved.get(job.id))
        for job in aged(self.now, self.waiting.values(), made.reasons):
            self.waiting[job.id] = job
        for start in made.starts:
            self._start(self.waiting.pop(start.job), start)
        for each in made.preemptions:
            self.left_for.setdefault(each.for_job, []).append(each.victim)
            self._drain(each.victim, for_job=each.for_job)
            if self.work[each.for_job].gives_up:
                self._at(self.now + _GIVES_UP_S, self._stop_one, each.for_job)
        if made.wake_at is not None and made.wake_at != self._woken:
            self._woken = made.wake_at
            self._at(made.wake_at + _TICK_S, self._wake)

    def _wake(self) -> None:
        """Look again: the plan has named this moment."""

    def _start(self, job: WaitingJob, start: Start) -> None:
        work, now = self.work[job.id], self.now
        self.left_for.pop(job.id, None)
        run = self._starts[job.id] = self._starts.get(job.id, 0) + 1
        self.places[job.id] = replace(job, returns_first=False, reservation=None)
        self.running[job.id] = RunningJob(
            id=job.id,
            user=job.user,
            groups=job.groups,
            priority=job.priority,
            needs=job.needs,
            devices=start.devices,
            cpus=start.cpus,
            stood=start.stood,
            started_at=now,
            time_s=job.time_s,
            ends_at=None if job.time_s is None else now + job.time_s,
            preemptible=job.preemptible,
            leaves_s=work.leaves_s,
            preempted_at=job.preempted_at,
            array=job.array,
        )
        self._at(now + work.run_s, self._end, job.id, run)

    def _end(self, name: str, run: int) -> None:
        """The workers of a run have ended."""
        job, work = self.running.get(name), self.work[name]
        if job is None or run != self._starts[name] or job.draining:
            return
        outcome = "failed elsewhere" if work.back_off_s and run == 1 else "succeeded"
        self._tell(f"{name} {outcome}")
        self.running[name] = replace(job, draining=True, ends_at=self.now + work.linger_s)
        if work.linger_s:
            self._at(self.now + work.linger_s, self._gone, name, run, outcome)
        else:
            self._gone(name, run, outcome)

    def _drain(self, name: str, *, for_job: str = "", outcome: str = "requeued") -> None:
        job, work = self.running[name], self.work[name]
        ends = self.now + job.leaves_s
        ends = ends if job.ends_at is None else min(ends, job.ends_at)
        self.running[name] = replace(job, draining=True, drains_for=for_job, ends_at=ends)
        left = min(self.now + work.drain_s, job.started_at + work.run_s) + work.linger_s
        self._at(left, self._gone, name, self._starts[name], outcome)

    def _gone(self, name: str, run: int, outcome: str) -> None:
        """No process of a run is left."""
        if name not in self.running or run != self._starts[name]:
            return
        job = self.running.pop(name)
        self._tell(f"{name} has left: {outcome}")
        if outcome in ("requeued", "failed elsewhere"):
            self._again(job, outcome)
        else:
            self._over(name, outcome)

    def _again(self, job: RunningJob, outcome: str) -> None:
        place = self.places[job.id]
        if job.drains_for:
            gave_up = job.drains_for in self._gave_up
            place = replace(place, preempted_at=(*place.preempted_at, self.now), returns_first=gave_up)
        elif outcome == "failed elsewhere":
            others = len(self.machine.devices) - 1
            avoid = job.devices[:1] if others >= job.needs.devices and not job.needs.on else ()
            place = replace(place, not_before=self.now + self.work[job.id].back_off_s, avoid=avoid)
        self.waiting[job.id] = replace(place, eligible_s=place.eligible(job.started_at), eligible_since=None)

    def _over(self, name: str, outcome: str) -> None:
        self.ended[name] = outcome
        for job in tuple(self.waiting.values()):
            if name in job.after:
                self.waiting[job.id] = replace(job, after=tuple(each for each in job.after if each != name))

    # People and devices

    def _submit(self, work: Work) -> None:
        job = work.job
        words = refusal(self.machine, job, self.waiting.values(), self.policy)
        self._judge.refused(self, job, words)
        if words is not None:
            self._tell(f"{job.id} is refused: {words}")
            self._over(job.id, "refused")
            return
        self._tell(f"{job.id} of {job.user} is submitted: {job.priority.name.lower()}, {_needs(job)}")
        after = tuple(each for each in job.after if each not in self.ended)
        self.waiting[job.id] = replace(job, after=after, submitted_at=self.now)

    def _trouble(self, trouble: Trouble, choice: int) -> None:
        self._tell(f"{trouble} ({choice})")
        match trouble:
            case Trouble.FAULT:
                self._device(choice, DeviceState.HELD, "a fault")
            case Trouble.SUSPECT:
                self._device(choice, DeviceState.SUSPECT, "two jobs blame it")
            case Trouble.FOREIGN:
                self._device(choice, DeviceState.FOREIGN, "pid 4711 computes")
            case Trouble.REPAIR:
                self._device(choice, DeviceState.USABLE, "")
            case Trouble.HOLD | Trouble.RELEASE:
                if job := self._pick(self.waiting, choice):
                    self.waiting[job] = replace(self.waiting[job], held="by ada" if trouble is Trouble.HOLD else "")
            case Trouble.STOP:
                self._stop(choice)
            case Trouble.PRIORITY:
                if job := self._pick(self.waiting, choice):
                    self.meddled.add(job)
                    self.waiting[job] = replace(self.waiting[job], priority=Priority(choice % 4))
            case Trouble.REQUEUE:
                if (job := self._pick(self.running, choice)) and not self.running[job].draining:
                    self._drain(job)
            case Trouble.CORE_DIES:
                self._die()
            case Trouble.CORE_RETURNS:
                self._return()
            case Trouble.REBOOT:
                self._reboot()
            case Trouble.MEMORY_LOW | Trouble.MEMORY_BACK:
                self.unrest += 1
                available = 0 if trouble is Trouble.MEMORY_LOW else None
                self.machine = replace(self.machine, available=available)
            case _:
                assert_never(trouble)

    def _pick(self, jobs: dict[str, Any], choice: int) -> str:
        return sorted(jobs)[choice % len(jobs)] if jobs else ""

    def _device(self, choice: int, state: DeviceState, reason: str) -> None:
        self.unrest += 1
        devices = list(self.machine.devices)
        if devices:
            place = choice % len(devices)
            devices[place] = replace(devices[place], state=state, reason=reason)
            self.machine = replace(self.machine, devices=tuple(devices))

    def _stop(self, choice: int) -> None:
        self._stop_one(self._pick({**self.waiting, **self.running}, choice))

    def _stop_one(self, name: str) -> None:
        if name in self.running and not self.running[name].draining:
            self._drain(name, outcome="stopped")
        elif name in self.waiting:
            claim = self.waiting.pop(name).reservation
            self._over(name, "stopped")
            if claim is None or not claim.claim:
                return
            self._gave_up.add(name)
            for victim in self.left_for.pop(name, ()):
                if victim in self.waiting:
                    self.waiting[victim] = replace(self.waiting[victim], returns_first=True)

    def _die(self) -> None:
        if not self._alive:
            return
        self.unrest += 1
        before = self.look()
        self._forget()
        self._judge.core_died(self, before, self.look())
        self._alive = False

    def _forget(self) -> None:
        """Lose what is in no record: the reservations that are no claims."""
        for job in tuple(self.waiting.values()):
            if job.reservation is not None and not job.reservation.claim:
                self.waiting[job.id] = replace(job, reservation=None)

    def _return(self) -> None:
        if self._alive:
            return
        self._alive = True
        self.unrest += 1
        late, self._late = self._late, []
        for act, args in late:
            self._happen(act, args)

    def _reboot(self) -> None:
        """The machine restarts: all that ran is put back, and the clock has moved on."""
        self.unrest += 1
        self.now += _REBOOT_S
        self._forget()
        for name, job in tuple(self.running.items()):
            del self.running[name]
            self._again(replace(job, drains_for=""), "requeued")

    def _calm(self) -> None:
        """From now on nothing is broken, held or limited any more."""
        self._return()
        self.unrest += 1
        devices = tuple(replace(each, state=DeviceState.USABLE, reason="") for each in self.machine.devices)
        self.machine = replace(self.machine, devices=devices, available=None)
        self.policy = replace(self.policy, limits={})
        for job in tuple(self.waiting.values()):
            self.waiting[job.id] = replace(job, held="")
        self._tell("all is calm")

    def _tell_plan(self, made: Plan) -> None:
        for start in made.starts:
            self._tell(f"start {start.job} on {', '.join(start.devices) or 'no device'}, {start.cpus} CPUs")
        for each in made.preemptions:
            self._tell(f"preempt {each.victim} for {each.for_job}")
        for kept in made.reservations:
            kind = "claim" if kept.claim else "reservation"
            self._tell(f"{kind} of {kept.job}: {', '.join(kept.devices) or 'no device'}, by {kept.at}")
        for name, reason in made.reasons.items():
            self._tell(f"    {name} waits: {reason.words()}")


def _needs(job: WaitingJob) -> str:
    needs = job.needs
    text = f"{needs.devices} devices, {needs.cpus} CPUs, memory {needs.memory}, time {job.time_s}"
    return text + (f", on {needs.on}" if needs.on else "") + (", exclusive" if needs.exclusive else "")
