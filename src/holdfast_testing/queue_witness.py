"""Judges each plan of a simulated queue by the invariants of the contract, with a second and simpler reading of them.

| | invariant |
|---|---|
| Q1 | no device, CPU or byte is promised twice, and none that may not be given |
| Q2 | a job starts with all that it needs, or not at all |
| Q3 | each accepted job starts or has one reason; when all is repaired and released, each job starts |
| Q4 | a job starts before another one that stands before it only where it does not delay that one; nothing idles |
| Q5 | only jobs submitted within (4 - class) ages after a job ever stand before it |
| Q6 | a reservation that has a time never moves later because of a job that was started after it was made |
| Q7 | a preemption is allowed, needed, the cheapest, and starts the job for which it was made |
| Q8 | no two jobs preempt each other |
| Q9 | what a job or process still has is given to nobody; a claim is for its job alone |
| Q10 | held, foreign and avoided devices are not given |
| Q11 | a core's death changes no order, no start and no claim |
| Q12 | a reason is true: what it says is missing is missing |
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

from holdfast.decide.queue.queue_model import Limits, Needs, RunningJob, WaitingJob
from holdfast.decide.queue.queue_order import why_before
from holdfast.decide.queue.queue_plan import Plan, Start
from holdfast.decide.queue.wait_reason import Missing, WaitReason
from holdfast_testing.queue_world import QueueWorld
from holdfast_testing.simulated_world import Violation

_DAY_S = 86_400.0
_SLACK_S = 1e-3
#: From here on ends stand that are not known.
_NEVER_S = 1e12

#: What somebody holds until a moment: devices, CPUs, memory, the moment.
Share = tuple[frozenset[str], int, int, float]


class Witness:
    """The judge of one simulated queue."""

    def __init__(self) -> None:
        self._reserved: tuple[str, float, int] | None = None
        self._claimed: dict[str, int] = {}
        self._preempted: set[tuple[str, str]] = set()
        #: By job: the seconds that counted until the last plan, its moment, and whether time counts since then.
        self._counted: dict[str, tuple[float, float, bool]] = {}

    # What the world calls

    def judge(self, world: QueueWorld, made: Plan) -> None:
        scene = Scene(world, made)
        scene.everyone_is_answered()
        scene.starts_are_allowed()
        scene.order_is_kept()
        scene.age_is_respected()
        scene.reasons_are_true()
        self._waiting_counts(scene)
        self._preemptions(scene)
        self._reservation_holds(scene)
        if world.only_wakes and not world.running and not made.starts:
            later = [reason for reason in made.reasons.values() if reason.missing is Missing.TIME]
            if not later:
                raise Violation("Q3", f"nothing runs and nothing is to come, but {', '.join(made.reasons)} wait")

    def refused(self, world: QueueWorld, job: WaitingJob, words: str | None) -> None:
        machine, policy, needs = world.machine, world.policy, job.needs
        cpus = machine.cpus - policy.reserve_cpus
        never = max(needs.devices, len(needs.on)) > len(machine.devices) or (needs.cpus > cpus and not needs.exclusive)
        never |= machine.memory is not None and (needs.memory or 0) > machine.memory - policy.reserve_memory
        never |= not {device.name for device in machine.devices} >= set(needs.on)
        if never != (words is not None):
            raise Violation("Q3", f"{job.id} can{'not' if never else ''} fit, and the answer at submit is {words!r}")

    def core_died(self, world: QueueWorld, before: Plan, after: Plan) -> None:
        if before.starts != after.starts or before.preemptions != after.preemptions:
            raise Violation("Q11", f"the next core starts {after.starts} instead of {before.starts}")
        if list(before.reasons) != list(after.reasons):
            raise Violation("Q11", f"the next core has the order {[*after.reasons]} instead of {[*before.reasons]}")
        if [each for each in before.reservations if each.claim] != [each for each in after.reservations if each.claim]:
            raise Violation("Q11", "the next core has other claims")

    def at_rest(self, world: QueueWorld) -> None:
        if world.waiting or world.running:
            raise Violation("Q3", f"{', '.join([*world.waiting, *world.running])} never ended")

    # What needs a memory

    def _waiting_counts(self, scene: Scene) -> None:
        """The waiting of a job counts where nothing but its turn was missing, and nowhere else."""
        now, jobs = scene.now, scene.world.waiting
        for name, job in jobs.items():
            counted, since, counts = self._counted.get(name, (0.0, now, False))
            if counts:
                counted += now - since
            if abs(job.eligible(now) - counted) > _SLACK_S:
                raise Violation("Q5", f"{name} waited {counted:.1f} s for its turn: {job.eligible(now):.1f} s count")
            turn = scene.waits_for_its_turn(job) and name not in scene.starts
            reason = scene.plan.reasons.get(name)
            limit = reason is not None and reason.missing in (Missing.LIMIT, Missing.ARRAY)
            self._counted[name] = (counted, now, turn and not limit)

    def _preemptions(self, scene: Scene) -> None:
        world = scene.world
        for_job: dict[str, list[RunningJob]] = {}
        for each in scene.plan.preemptions:
            for_job.setdefault(each.for_job, []).append(world.running[each.victim])
        for name, victims in for_job.items():
            scene.preemption_is_allowed(world.waiting[name], victims)
            self._claimed[name] = world.unrest
            for victim in victims:
                if (name, victim.id) in self._preempted and not {name, victim.id} & world.meddled:
                    raise Violation("Q8", f"{victim.id} was preempted for {name}, and {name} before for {victim.id}")
                self._preempted.add((victim.id, name))
        started = {start.job for start in scene.plan.starts}
        for name, unrest in tuple(self._claimed.items()):
            waits = name in world.waiting and name not in started
            if not waits or unrest != world.unrest or world.waiting[name].held:
                del self._claimed[name]
            elif name not in for_job and not any(job.drains_for == name for job in world.running.values()):
                raise Violation("Q7", f"all jobs have left that were preempted for {name}, and it does not start")

    def _reservation_holds(self, scene: Scene) -> None:
        world, kept = scene.world, next((each for each in scene.plan.reservations if not each.claim), None)
        earlier, self._reserved = self._reserved, None
        if kept is not None and kept.at is not None:
            self._reserved = (kept.job, kept.at, world.unrest)
        if earlier is None or kept is None:
            return
        job, at, unrest = earlier
        if kept.job != job or unrest != world.unrest or scene.overtaken(job) or scene.assumes():
            return
        if kept.at is None or kept.at > at + _SLACK_S:
            raise Violation("Q6", f"the start of {job} moves from {at:.1f} s to {kept.at} s")
        if world.now > at + 1.0:
            raise Violation("Q6", f"{job} was to start by {at:.1f} s, and waits at {world.now:.1f} s")


class Scene:
    """One plan, and the world at its moment."""

    def __init__(self, world: QueueWorld, made: Plan) -> None:
        self.world, self.plan, self.now = world, made, world.now
        self.policy, self.machine = world.policy, world.machine
        self.all_cpus = max(self.machine.cpus - self.policy.reserve_cpus, 1)
        memory = self.machine.memory
        self.all_memory = 10**9 if memory is None else memory - self.policy.reserve_memory
        self.given = {device.name for device in self.machine.devices if device.state in ("usable", "suspect")}
        self.low = self.machine.available is not None and self.machine.available <= self.policy.reserve_memory
        self.claims = {each.job: each for each in made.reservations if each.claim}
        self.kept = next((each for each in made.reservations if not each.claim), None)
        self.starts = {start.job: start for start in made.starts}
        self.running = [self._share(job) for job in world.running.values()]
        self.order = sorted(world.waiting.values(), key=self._key)

    # Readings

    def cpus(self, needs: Needs) -> int:
        return self.all_cpus if needs.exclusive else max(needs.cpus, 1)

    def ends(self, job: WaitingJob, start: float) -> float:
        time_s = self.policy.assume_time_s if job.time_s is None else job.time_s
        return _NEVER_S + start if time_s is None else start + time_s

    def started(self, start: Start) -> Share:
        job = self.world.waiting[start.job]
        return frozenset(start.devices), start.cpus, job.needs.memory or 0, self.ends(job, self.now)

    def aged(self, job: WaitingJob) -> float:
        waited = job.eligible(self.now) / self.policy.age_s
        return job.priority + (math.floor(waited) if job.priority + waited < 4 else waited)

    def waits_for_its_turn(self, job: WaitingJob) -> bool:
        """Return whether nothing but its turn is missing, limits apart."""
        return not job.held and not job.after and (job.not_before is None or job.not_before <= self.now)

    def _key(self, job: WaitingJob) -> tuple[object, ...]:
        use = self.world.shares.use(job.user, self.now) if self.aged(job) < 4 else 0.0
        return not job.returns_first, -self.aged(job), use, job.submitted_at, job.id

    def _share(self, job: RunningJob) -> Share:
        ends = job.ends_at
        if ends is None and self.policy.assume_time_s is not None:
            ends = job.started_at + self.policy.assume_time_s
            ends = None if ends <= self.now else ends
        ends = _NEVER_S + job.started_at if ends is None else max(ends, self.now)
        return frozenset(job.devices), job.has_cpus, job.needs.memory or 0, ends

    def fits(self, job: WaitingJob, held: Iterable[Share], closed: frozenset[str] = frozenset()) -> bool:
        """Return whether a job could start beside all that is held."""
        return not self.lacks(job, held, closed)

    def lacks(self, job: WaitingJob, held: Iterable[Share], closed: frozenset[str] = frozenset()) -> set[Missing]:
        """Return what a job lacks beside all that is held."""
        devices, cpus, memory = self.given - closed, self.all_cpus, self.all_memory
        for names, some_cpus, some_memory, _ in held:
            devices = devices - names
            cpus -= some_cpus
            memory -= some_memory
        needs, lacking = job.needs, set[Missing]()
        usable = devices - set(job.avoid)
        if len(usable) < max(needs.devices, len(needs.on)) or not usable >= set(needs.on):
            lacking.add(Missing.DEVICES)
        if cpus < self.cpus(needs):
            lacking.add(Missing.CPUS)
        if memory < (needs.memory or 0):
            lacking.add(Missing.MEMORY)
        return lacking

    def earliest(self, job: WaitingJob, held: Sequence[Share]) -> float:
        """Return the first moment at which a job fits, if each holder leaves at its end."""
        for moment in sorted({self.now, *(share[3] for share in held)}):
            if self.fits(job, [share for share in held if share[3] > moment]):
                return moment
        return math.inf

    def overtaken(self, name: str) -> bool:
        """Return whether this plan starts a job, or preempts for one, that stands before this one."""
        before = itertools.takewhile(lambda job: job.id != name, self.order)
        return any(job.id in self.starts or job.id in self.claims for job in before)

    def assumes(self) -> bool:
        """Return whether an end is assumed: a job may run on after it."""
        return self.policy.assume_time_s is not None and any(job.time_s is None for job in self.world.running.values())

    # Invariants

    def everyone_is_answered(self) -> None:
        waiting = set(self.world.waiting)
        if self.starts.keys() | self.plan.reasons.keys() != waiting:
            raise Violation("Q3", f"no answer for {waiting - self.starts.keys() - self.plan.reasons.keys()}")
        if both := self.starts.keys() & self.plan.reasons.keys():
            raise Violation("Q3", f"{both} start and wait")
        if len(self.starts) < len(self.plan.starts):
            raise Violation("Q1", "one job starts twice")

    def starts_are_allowed(self) -> None:
        world, held = self.world, list(self.running)
        usage = self._usage()
        for start in self.plan.starts:
            job = world.waiting[start.job]
            if not self.waits_for_its_turn(job):
                raise Violation("Q2", f"{job.id} starts, though it is held, waits for a job or a moment")
            if self.low and job.needs.memory is None:
                raise Violation("Q2", f"{job.id} does not say its memory and starts while none is available")
            wanted = max(job.needs.devices, len(job.needs.on))
            whole = len(set(start.devices)) == len(start.devices) == wanted and start.cpus == self.cpus(job.needs)
            stands = max(self.aged(job), 4 if job.returns_first else 0)
            if abs(start.stood - stands) > _SLACK_S:
                raise Violation("Q7", f"{job.id} stands at {stands}, and the start says {start.stood}")
            if not whole or not set(start.devices) >= set(job.needs.on):
                raise Violation("Q2", f"{job.id} gets {start.devices} and {start.cpus} CPUs: that is not what it needs")
            if not self.given >= set(start.devices) or not set(job.avoid).isdisjoint(start.devices):
                raise Violation("Q10", f"{job.id} gets a device that may not be given to it: {start.devices}")
            share = self.started(start)
            if any(share[0] & other[0] for other in held):
                raise Violation("Q1", f"{job.id} gets a device that somebody has: {start.devices}")
            held.append(share)
            self._count(usage, job, len(start.devices), start.cpus)
        if sum(share[1] for share in held) > self.all_cpus and self.starts:
            raise Violation("Q1", "more CPUs are given than the machine has")
        if sum(share[2] for share in held) > self.all_memory and self.starts:
            raise Violation("Q1", "more memory is given than the machine has")
        self._claims_can_be_met(held)
        for name in self.claims:
            job = world.waiting[name]
            self._count(usage, job, max(job.needs.devices, len(job.needs.on)), self.cpus(job.needs))
        if self.starts and (over := self._over(usage)):
            raise Violation("Q2", f"over a limit: {over}")

    def _claims_can_be_met(self, held: Sequence[Share]) -> None:
        """A claim is met, however soon or late the victims of the other claims leave."""
        leaving = {each.victim: each.for_job for each in self.plan.preemptions}
        left = {name: self._leavers(name, leaving) for name in self.claims}
        cpus = self.all_cpus - sum(share[1] for share in held)
        memory = self.all_memory - sum(share[2] for share in held)
        taken: set[str] = set()
        for name, claim in self.claims.items():
            job = self.world.waiting[name]
            cpus -= max(self.cpus(job.needs) - sum(share[1] for share in left[name]), 0)
            memory -= max((job.needs.memory or 0) - sum(share[2] for share in left[name]), 0)
            if not taken.isdisjoint(claim.devices):
                raise Violation("Q9", f"two claims have the same device: {claim.devices}")
            taken |= set(claim.devices)
            others = [share for share in held if share not in left[name]]
            if any(not share[0].isdisjoint(claim.devices) for share in others):
                raise Violation("Q9", f"another job gets what is claimed for {name}: {claim.devices}")
        if self.claims and (cpus < 0 or memory < 0):
            raise Violation("Q9", "more is claimed than is left")

    def _leavers(self, name: str, leaving: dict[str, str]) -> list[Share]:
        return [
            self._share(job)
            for job in self.world.running.values()
            if job.drains_for == name or leaving.get(job.id) == name
        ]

    def order_is_kept(self) -> None:
        """The first job that could start and does not is delayed by no start after it; and nothing idles."""
        begun: list[Share] = [self.started(start) for start in self.plan.starts]
        others = self._others()
        held = [*others, *begun]
        blocked = [job for job in self.order if self._is_blocked(job)]
        first = blocked[0] if blocked else None
        kept = self.kept
        kept_for, waits = kept.job if kept else "nobody", first.id if first else "nobody"
        if kept_for != waits:
            raise Violation("Q4", f"the reservation is for {kept_for}, and the first that waits is {waits}")
        if first is None or kept is None:
            return
        place = self.order.index(first)
        before = {job.id for job in self.order[:place]}
        before.update(job.id for job in self.order if job.reservation is not None and job.reservation.claim)
        later = [start for start in self.plan.starts if start.job not in before]
        without = [*others, *(self.started(start) for start in self.plan.starts if start.job in before)]
        at = self.earliest(first, without)
        if self.earliest(first, [*without, *(self._lasting(self.started(start)) for start in later)]) > at + _SLACK_S:
            raise Violation("Q4", f"{first.id} could start at {at:.1f} s without {[start.job for start in later]}")
        if (kept.at is None) != (at >= _NEVER_S) or (kept.at is not None and abs(kept.at - at) > _SLACK_S):
            raise Violation("Q6", f"{first.id} is to start at {kept.at} s: it fits at {at:.1f} s")
        expected = [self.plan.reasons[job.id].starts_at for job in blocked]
        if [moment for moment in expected if moment is not None] != sorted(moment for moment in expected if moment):
            raise Violation("Q12", f"the expected starts are not in the order of the queue: {expected}")
        if kept.at is not None and (expected[0] is None or abs(expected[0] - kept.at) > _SLACK_S):
            raise Violation("Q12", f"{first.id} is expected at {expected[0]} s, and reserved for {kept.at} s")
        closed = frozenset(kept.devices)
        for start in later:
            over = kept.at is not None and self.ends(self.world.waiting[start.job], self.now) <= kept.at
            if not over and not closed.isdisjoint(start.devices):
                raise Violation("Q9", f"{start.job} gets {start.devices}, of which some are kept for {first.id}")
        for job in blocked[1:]:
            over = kept.at is not None and self.ends(job, self.now) <= kept.at
            if not self.fits(job, held, frozenset() if over else closed):
                continue
            mine = self._any_share(job, held, frozenset() if over else closed)
            if kept.at is None:
                no_delay = self.fits(first, [*(share for share in held if share[0].isdisjoint(closed)), mine])
            else:
                no_delay = over or self.earliest(first, [*held, mine]) <= at
            if no_delay and not self._same_limits(first, job):
                raise Violation("Q4", f"{job.id} could start without a delay of {first.id}, and waits")

    def _is_blocked(self, job: WaitingJob) -> bool:
        reason = self.plan.reasons.get(job.id)
        if reason is None or job.id in self.claims:
            return False
        return reason.its_turn and reason.missing not in (Missing.MACHINE, Missing.AVAILABLE)

    def _lasting(self, share: Share) -> Share:
        """While the moment of the reservation is not known, what somebody takes counts as taken for good."""
        return share if self.kept is not None and self.kept.at is not None else (*share[:3], math.inf)

    def _others(self) -> list[Share]:
        """Return what the running jobs and the claims hold. Jobs that leave for a claim hold what is beyond it."""
        leaving = {each.victim: each.for_job for each in self.plan.preemptions}
        held, gone = [], set[str]()
        for name, claim in self.claims.items():
            job, ends = self.world.waiting[name], max(self.now, claim.at or self.now)
            leavers = [each for each in self.world.running.values() if leaving.get(each.id, each.drains_for) == name]
            gone.update(each.id for each in leavers)
            left = [self._share(each) for each in leavers]
            cpus, memory = self.cpus(job.needs), job.needs.memory or 0
            devices = frozenset(device for share in left for device in share[0]) - set(claim.devices)
            more_cpus, more_memory = sum(share[1] for share in left) - cpus, sum(share[2] for share in left) - memory
            held.append((devices, max(more_cpus, 0), max(more_memory, 0), ends))
            held.append((frozenset(claim.devices), cpus, memory, self.ends(job, ends)))
        return held + [self._share(job) for job in self.world.running.values() if job.id not in gone]

    def _any_share(self, job: WaitingJob, held: Sequence[Share], closed: frozenset[str]) -> Share:
        free = self.given - closed - set(job.avoid) - {name for share in held for name in share[0]}
        count = max(job.needs.devices, len(job.needs.on))
        names = [*job.needs.on, *sorted(free - set(job.needs.on))][:count]
        return frozenset(names), self.cpus(job.needs), job.needs.memory or 0, self.ends(job, self.now)

    def _same_limits(self, one: WaitingJob, other: WaitingJob) -> bool:
        if one.array and one.array == other.array:
            return True
        return bool(self.policy.limits) and (one.user == other.user or not set(one.groups).isdisjoint(other.groups))

    def age_is_respected(self) -> None:
        """Only jobs submitted within (4 - class) ages after a job stand before it, if its waiting always counted."""
        for place, job in enumerate(self.order):
            always = job.eligible(self.now) >= self.now - job.submitted_at - _SLACK_S
            if not always or job.id in self.world.meddled:
                continue
            until = job.submitted_at + (4 - job.priority) * self.policy.age_s
            for other in self.order[:place]:
                if other.submitted_at > until and other.id not in self.world.meddled and not other.returns_first:
                    why = why_before(self.now, other, job, self.policy, self.world.shares)
                    raise Violation("Q5", f"{other.id} stands before {job.id}, which is far older: {why}")
        position = {name: place for place, name in enumerate(self.plan.reasons)}
        places = [position[job.id] for job in self.order if job.id in position]
        if places != sorted(places):
            raise Violation("Q4", f"the order is {[*self.plan.reasons]}, expected {[job.id for job in self.order]}")

    def preemption_is_allowed(self, job: WaitingJob, victims: Sequence[RunningJob]) -> None:
        policy, claim = self.policy, self.claims.get(job.id)
        if claim is None:
            raise Violation("Q7", f"{job.id} has no claim on what its victims leave")
        for victim in victims:
            lately = [at for at in victim.preempted_at if at > self.now - _DAY_S]
            if victim.priority >= job.priority:
                raise Violation("Q7", f"{victim.id} is preempted for {job.id}, whose class is not higher")
            if victim.stood >= self.aged(job):
                raise Violation("Q7", f"{victim.id} has got its turn before {job.id} and is preempted for it")
            if not victim.preemptible or victim.draining or len(lately) >= policy.most_preemptions_a_day:
                raise Violation("Q7", f"{victim.id} may not be preempted")
            if self.now - victim.started_at < policy.preempt_after_s:
                raise Violation("Q7", f"{victim.id} is preempted in its first {policy.preempt_after_s:g} s")
        if not all(self._limits(owner).preempts for owner in _owners(job)):
            raise Violation("Q7", f"{job.user} may not preempt")
        del self.claims[job.id]
        others = [*self._others(), *(self.started(start) for start in self.plan.starts)]
        self.claims[job.id] = claim
        gone = [self._share(victim) for victim in victims]
        free = _without(others, gone)
        if not self.fits(job, free):
            raise Violation("Q7", f"{job.id} does not start when {[victim.id for victim in victims]} have left")
        for spared in gone:
            if self.fits(job, [*free, spared]):
                raise Violation("Q7", f"{job.id} would start without one of {[victim.id for victim in victims]}")
        leave_by = self.now + max(victim.leaves_s for victim in victims)
        if self.earliest(job, others) <= leave_by:
            raise Violation("Q7", f"{job.id} starts as soon if nobody is preempted")
        self._cheaper(job, victims, others)

    def _cheaper(self, job: WaitingJob, victims: Sequence[RunningJob], others: list[Share]) -> None:
        """No lower classes would have been enough, and no single job that costs less."""
        highest = max(victim.priority for victim in victims)
        others_leave = {each.victim for each in self.plan.preemptions if each.for_job != job.id}
        candidates = [
            each
            for each in self.world.running.values()
            if each.preemptible
            and not each.draining
            and each.id not in others_leave
            and each.priority < job.priority
            and each.stood < self.aged(job)
            and self.now - each.started_at >= self.policy.preempt_after_s
            and sum(at > self.now - _DAY_S for at in each.preempted_at) < self.policy.most_preemptions_a_day
        ]
        lower = [self._share(each) for each in candidates if each.priority < highest]
        if self.fits(job, _without(others, lower)):
            raise Violation("Q7", f"{job.id} would start by jobs below class {highest}")
        lost = sum(self._lost(victim) for victim in victims)
        for each in candidates:
            alone = self.fits(job, _without(others, [self._share(each)]))
            if alone and (each.priority, self._lost(each)) < (highest, lost - _SLACK_S):
                raise Violation("Q7", f"{each.id} alone is enough for {job.id} and loses less")

    def _lost(self, job: RunningJob) -> float:
        return self.now - max(job.started_at, job.saved_at or 0.0)

    # Reasons

    def reasons_are_true(self) -> None:
        held = [*self.running, *(self.started(start) for start in self.plan.starts)]
        usage = self._usage()
        for start in self.plan.starts:
            self._count(usage, self.world.waiting[start.job], len(start.devices), start.cpus)
        for name in self.claims:
            needs = self.world.waiting[name].needs
            self._count(usage, self.world.waiting[name], max(needs.devices, len(needs.on)), self.cpus(needs))
        for name, reason in self.plan.reasons.items():
            job = self.world.waiting[name]
            if not self._is_true(job, reason, held, usage):
                raise Violation("Q12", f"{name} does not wait because: {reason.words()}")

    def _is_true(self, job: WaitingJob, reason: WaitReason, held: list[Share], usage: Counter[str]) -> bool:
        match reason.missing:
            case Missing.RELEASE:
                return bool(job.held)
            case Missing.DEPENDENCY:
                return set(reason.jobs) == set(job.after) and bool(job.after)
            case Missing.TIME:
                return reason.starts_at is not None and reason.starts_at > self.now
            case Missing.LIMIT | Missing.ARRAY:
                after = Counter(usage)
                self._count(after, job, max(job.needs.devices, len(job.needs.on)), self.cpus(job.needs))
                return bool(self._over(after, job))
            case Missing.MACHINE:
                return not self.fits(job, ())
            case Missing.AVAILABLE:
                return self.low and job.needs.memory is None
            case Missing.VICTIMS:
                leaving = {each.victim: each.for_job for each in self.plan.preemptions}
                return bool(reason.jobs) and len(reason.jobs) == len(self._leavers(job.id, leaving))
            case Missing.CPUS | Missing.MEMORY:
                return reason.missing in self.lacks(job, held) and reason.free < reason.needs
            case Missing.DEVICES:
                named = self.given - {name for share in held for name in share[0]}
                busy = named.isdisjoint(reason.devices) or not set(reason.devices).isdisjoint(job.avoid)
                return Missing.DEVICES in self.lacks(job, held) and busy
            case Missing.KEPT:
                kept = {*self.claims, *([self.kept.job] if self.kept else [])} - {job.id}
                return self.fits(job, held) and bool(reason.jobs) and kept >= set(reason.jobs)
        assert_never(reason.missing)

    # Limits

    def _limits(self, owner: str) -> Limits:
        limits = self.policy.limits
        return limits.get(owner) or (Limits() if owner.startswith("@") else limits.get("", Limits()))

    def _usage(self) -> Counter[str]:
        usage = Counter[str]()
        for job in self.world.running.values():
            self._count(usage, job, len(job.devices), job.has_cpus)
        return usage

    def _count(self, usage: Counter[str], job: WaitingJob | RunningJob, devices: int, cpus: int) -> None:
        for owner in _owners(job) if self.policy.limits else ():
            usage.update({f"running {owner}": 1, f"devices {owner}": devices, f"cpus {owner}": cpus})
        if job.array:
            usage[f"array {job.array}"] += 1

    def _over(self, usage: Counter[str], only: WaitingJob | None = None) -> str:
        """Return a limit that is exceeded; empty: none. `only`: of this job."""
        arrays = {job.array: job.array_limit for job in self.world.waiting.values() if job.array_limit}
        for what, has in usage.items():
            kind, _, owner = what.partition(" ")
            if only is not None and owner not in (*_owners(only), only.array):
                continue
            most = arrays.get(owner) if kind == "array" else getattr(self._limits(owner), kind)
            if most is not None and has > most:
                return f"{what}: {has} of {most}"
        return ""


def _owners(job: WaitingJob | RunningJob) -> tuple[str, ...]:
    return (job.user, *(f"@{group}" for group in job.groups))


def _without(shares: Sequence[Share], gone: Sequence[Share]) -> list[Share]:
    rest = list(shares)
    for share in gone:
        rest.remove(share)
    return rest
