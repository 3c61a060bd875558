"""Bugs planted in the queue of one machine. Most are caught by random histories, the others by a test of their own."""

from __future__ import annotations

from holdfast_testing.planted_bug import PlantedBug

HISTORIES = ("decide/queue/test_queue_histories.py::test_every_invariant_holds_in_random_histories",)
_PLAN, _ORDER = "decide/queue/queue_plan.py", "decide/queue/queue_order.py"
_VICTIMS, _RESERVATION = "decide/queue/victim_choice.py", "decide/queue/queue_reservation.py"
_CAPACITY, _LIMITS = "decide/queue/free_capacity.py", "decide/queue/queue_limits.py"
_DEVICES, _MODEL = "decide/queue/device_choice.py", "decide/queue/queue_model.py"


def _bug(name: str, wrong: str, place: tuple[str, str], right: str, broken: str, *, test: str = "") -> PlantedBug:
    """Return a bug that random histories catch, or a test of the plan if they meet it too seldom."""
    file, function = place
    tests = (f"decide/queue/test_queue_plan.py::{test}",) if test else HISTORIES
    return PlantedBug(
        name=f"queue-{name}", wrong=wrong, file=file, place=function, right=right, broken=broken, tests=tests
    )


IN_QUEUE = (
    _bug(
        "device-twice",
        "the devices of a job that starts stay free",
        (_PLAN, "_Planner._begin"),
        "capacity.take(devices, cpus, memory)",
        "capacity.take((), cpus, memory)",
    ),
    _bug(
        "cpus-twice",
        "the CPUs of a job that starts stay free",
        (_PLAN, "_Planner._begin"),
        "capacity.take(devices, cpus, memory)",
        "capacity.take(devices, 0, memory)",
    ),
    _bug(
        "memory-ignored",
        "memory is promised without an end",
        (_CAPACITY, "Capacity.has_room"),
        "or (needs.memory or 0) > self.memory ",
        "",
    ),
    _bug(
        "reserve-given",
        "the CPUs that are reserved for the machine are given",
        (_CAPACITY, "Capacity.__init__"),
        "machine.cpus - policy.reserve_cpus",
        "machine.cpus",
    ),
    _bug(
        "in-part",
        "a job that has named devices gets only as many as it has typed",
        (_CAPACITY, "device_count"),
        "max(needs.devices, len(needs.on))",
        "len(needs.on) or needs.devices",
    ),
    _bug(
        "foreign-given",
        "a device that somebody else uses is given",
        (_MODEL, "Device.given"),
        "(DeviceState.USABLE, DeviceState.SUSPECT)",
        "(DeviceState.USABLE, DeviceState.SUSPECT, DeviceState.FOREIGN)",
    ),
    _bug(
        "held-comes-back",
        "a held device is given when its job ends",
        (_CAPACITY, "Capacity.__init__"),
        "self.given = {device.name: device for device in machine.devices if device.given}",
        "self.given = {device.name: device for device in machine.devices}",
    ),
    _bug(
        "avoided-given",
        "a job comes back to the device on which it has failed",
        (_PLAN, "_Planner._place"),
        "closed = frozenset(job.avoid)",
        "closed = frozenset[str]()",
    ),
    _bug(
        "no-ageing",
        "a job of a low class waits for ever",
        (_ORDER, "in_order"),
        "-aged, used",
        "-job.priority, used",
    ),
    _bug(
        "old-jobs-overtake",
        "the use of the machine decides between old jobs, so that both may wait for ever",
        (_ORDER, "aged_class"),
        "(ages if job.priority + ages >= ABOVE_ALL else int(ages))",
        "int(ages)",
    ),
    _bug(
        "held-ages",
        "a job rises while it is held",
        (_ORDER, "aged"),
        "reason is not None and reason.its_turn",
        "reason is not None",
    ),
    _bug(
        "use-ignored",
        "a user's use does not count in the order",
        (_ORDER, "in_order"),
        "use[job.user] if aged < ABOVE_ALL else 0.0",
        "0.0",
    ),
    _bug(
        "backfill-delays",
        "a job with a time limit is started though it is not over before the reservation",
        (_RESERVATION, "Kept.is_over_by"),
        " and ends <= self.reservation.at",
        " and ends < math.inf",
    ),
    _bug(
        "backfill-takes-cpus",
        "a long job takes the CPUs that the reservation needs",
        (_PLAN, "_Planner._place"),
        "if cpus > kept.cpus or memory > kept.memory:",
        "if memory > kept.memory:",
    ),
    _bug(
        "backfill-counts-once",
        "each of several long jobs is compared with the same spare CPUs",
        (_PLAN, "_Planner._begin"),
        "self._kept.cpus -= cpus",
        "pass",
        test="test_long_jobs_share_what_the_reservation_leaves",
    ),
    _bug(
        "kept-device-given",
        "a long job gets a device of the reservation",
        (_PLAN, "_Planner._place"),
        "closed |= kept.devices",
        "pass",
    ),
    _bug(
        "last-reserves",
        "the last job that cannot start gets the reservation, not the first",
        (_PLAN, "_Planner.start"),
        "elif self._kept is not None or self._beyond(job):",
        "elif self._beyond(job):",
    ),
    _bug(
        "broken-machine-reserves",
        "a job that waits for a held device keeps all others",
        (_PLAN, "_Planner.start"),
        "elif self._kept is not None or self._beyond(job):",
        "elif self._kept is not None or self._low:",
    ),
    _bug(
        "late-end",
        "a job that should have left by now makes the start unknown",
        (_PLAN, "_Planner._held"),
        "math.inf if ends is None else max(ends, self._now)",
        "math.inf if ends is None or ends <= self._now else ends",
        test="test_a_job_that_should_have_left_by_now_is_about_to_leave",
    ),
    _bug(
        "crowded-out",
        "a later job of a user brings the user's first one over the limit",
        (_PLAN, "_Planner._place"),
        "if kept is not None and self._usage.crowds_out(kept.job, job, free):",
        "if kept is not None and kept.job is job:",
    ),
    _bug(
        "claims-over-limit",
        "what is claimed does not count for its user's limit",
        (_PLAN, "_Planner._claim"),
        "self._usage.add(job, len(reservation.devices), claim.held.cpus)",
        "pass",
        test="test_a_claim_counts_for_its_user_s_limit",
    ),
    _bug(
        "equal-class-preempts",
        "a job preempts one of its class",
        (_VICTIMS, "may_be_preempted"),
        "victim.priority < job.priority",
        "victim.priority <= job.priority",
    ),
    _bug(
        "turn-taken-back",
        "an old job that has got its turn is preempted by one that stood behind it",
        (_VICTIMS, "may_be_preempted"),
        "        and victim.stood < aged_class(now, job, policy)\n",
        "",
    ),
    _bug(
        "young-victim",
        "a job is preempted in its first minutes",
        (_VICTIMS, "spared_until"),
        "victim.started_at + policy.preempt_after_s",
        "victim.started_at",
    ),
    _bug(
        "preempted-all-day",
        "a job is preempted without an end",
        (_VICTIMS, "spared_until"),
        "len(lately) >= policy.most_preemptions_a_day",
        "len(lately) > 99",
    ),
    _bug(
        "needless-victims",
        "jobs are preempted that are not needed",
        (_VICTIMS, "choose_victims"),
        "if enough(fewer):",
        "if not fewer:",
    ),
    _bug(
        "dear-victim",
        "the victim with the most lost work is taken first",
        (_VICTIMS, "choose_victims"),
        "key=lambda victim: (victim.priority, lost_work_s(now, victim), victim.id)",
        "key=lambda victim: (-victim.priority, -lost_work_s(now, victim), victim.id)",
        test="test_the_lowest_class_with_the_least_lost_work_leaves",
    ),
    _bug(
        "vain-preemption",
        "jobs are preempted though the start would be as soon without",
        (_PLAN, "_Planner._preempt"),
        "if not victims or starts_at <= leave_by:",
        "if not victims:",
    ),
    _bug(
        "claim-forgotten",
        "what a victim leaves is given to the first in the order",
        (_PLAN, "_Planner.start"),
        "if job.reservation is not None and job.reservation.claim:",
        "if job.reservation is not None and job.reservation.claim and job.priority > 2:",
    ),
    _bug(
        "claim-takes-nothing",
        "what is free and needed for a claim is given to others until the victims have left",
        (_RESERVATION, "claimed"),
        "free.take(devices, max(cpus - left_cpus, 0), max(memory - left_memory, 0))",
        "free.take(devices, 0, 0)",
    ),
    _bug(
        "false-reason",
        "a job that lacks memory says that it lacks CPUs",
        (_PLAN, "_Planner._lacking"),
        "if cpus > idle.cpus:",
        "if cpus > idle.cpus or memory > idle.memory:",
    ),
    _bug(
        "stale-reason",
        "a reason says that a claim's victims stay when they have left",
        (_PLAN, "_Planner._victims"),
        "each.drains_for == job.id",
        "each.drains_for",
        test="test_two_claims_do_not_share_victims",
    ),
    _bug(
        "refused-for-a-while",
        "a job is refused at submit for what a job can wait for",
        (_LIMITS, "never_fits"),
        "names = [device.name for device in machine.devices]",
        "names = [device.name for device in machine.devices if device.given]",
    ),
    _bug(
        "accepted-for-ever",
        "a job that needs more CPUs than the machine gives is accepted",
        (_LIMITS, "never_fits"),
        "if not needs.exclusive and needs.cpus > capacity.all_cpus:",
        "if not needs.exclusive and needs.cpus > machine.cpus + 99:",
    ),
)
