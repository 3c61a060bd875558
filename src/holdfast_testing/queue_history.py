"""Draws the history of one simulated queue from a seed: a machine, a policy, jobs, and what happens to them.

All amounts are small, so that jobs often lack something, and a reader can follow the story.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from dataclasses import dataclass

from msgspec.structs import replace

from holdfast.decide.queue.queue_model import Device, Limits, Machine, Needs, Policy, Priority, WaitingJob

USERS = ("ada", "bob", "eve")


class Trouble(enum.StrEnum):
    """What happens besides submissions and ends."""

    FAULT = "fault"
    SUSPECT = "suspect"
    FOREIGN = "foreign"
    REPAIR = "repair"
    HOLD = "hold"
    RELEASE = "release"
    STOP = "stop"
    PRIORITY = "priority"
    REQUEUE = "requeue"
    CORE_DIES = "core dies"
    CORE_RETURNS = "core returns"
    REBOOT = "reboot"
    MEMORY_LOW = "memory low"
    MEMORY_BACK = "memory back"


@dataclass(frozen=True)
class Work:
    """A job as the user submits it, and what its processes will do."""

    job: WaitingJob
    #: Seconds of each run, if nothing ends it before.
    run_s: float
    #: Seconds in which it leaves after a drain notice, at most `leaves_s`.
    drain_s: float
    leaves_s: float
    #: Seconds for which a process keeps the devices open after the end.
    linger_s: float
    #: Its first run fails, and it waits so long for other devices; 0: it does not.
    back_off_s: float
    #: Its user stops it as soon as others are preempted for it.
    gives_up: bool


@dataclass(frozen=True)
class History:
    seed: int
    machine: Machine
    policy: Policy
    work: tuple[Work, ...]
    #: (moment, trouble, a number that chooses the job or device)
    troubles: tuple[tuple[float, Trouble, int], ...] = ()


#: The last moment of a submission or trouble, in seconds. Afterwards all is repaired and released.
CALM_S = 2400.0
_PAIRS = {
    Trouble.FAULT: Trouble.REPAIR,
    Trouble.SUSPECT: Trouble.REPAIR,
    Trouble.FOREIGN: Trouble.REPAIR,
    Trouble.HOLD: Trouble.RELEASE,
    Trouble.CORE_DIES: Trouble.CORE_RETURNS,
    Trouble.MEMORY_LOW: Trouble.MEMORY_BACK,
}
_BEGINNINGS = (*_PAIRS, Trouble.STOP, Trouble.PRIORITY, Trouble.REQUEUE, Trouble.REBOOT)


def draw_history(seed: int) -> History:
    """Return the history of a seed."""
    dice = random.Random(f"queue {seed}")
    count = dice.choice((0, 1, 2, 2, 3, 4, 4, 8))
    machine = Machine(
        devices=tuple(_device(dice, index, count) for index in range(count)),
        cpus=dice.choice((2, 4, 8, 12)),
        memory=dice.choice((None, 8, 16)),
    )
    policy = _policy(dice)
    work = [_work(dice, number, machine, policy) for number in range(dice.randrange(3, 9))]
    work.sort(key=lambda each: each.job.submitted_at)
    if dice.random() < 0.25:
        work = [_dependent(dice, work, number) for number in range(len(work))]
    troubles = []
    for _ in range(dice.choice((0, 0, 1, 2, 4))):
        at, kind, choice = dice.uniform(0, CALM_S), dice.choice(_BEGINNINGS), dice.randrange(1000)
        troubles.append((at, kind, choice))
        if kind in _PAIRS:
            troubles.append((min(at + dice.expovariate(1 / 300), CALM_S), _PAIRS[kind], choice))
    return History(seed, machine, policy, tuple(work), tuple(troubles))


def _device(dice: random.Random, index: int, count: int) -> Device:
    near = sorted((other for other in range(count) if other != index), key=lambda other: (other ^ index, other))
    links = tuple(f"gpu{other}" for other in near) if count > 3 else ()
    return Device(name=f"gpu{index}", index=index, numa=2 * index // count, links=links)


def _policy(dice: random.Random) -> Policy:
    limits = {}
    if dice.random() < 0.3:
        limits["ada"] = Limits(
            running=dice.choice((None, 1, 2)), devices=dice.choice((None, 2)), preempts=dice.random() < 0.5
        )
        limits[""] = Limits(cpus=dice.choice((None, 4)), running=dice.choice((None, 2)))
        limits["@team"] = Limits(running=dice.choice((None, 2)))
    return Policy(
        age_s=dice.choice((300.0, 900.0, 43_200.0)),
        half_life_s=dice.choice((600.0, 86_400.0)),
        preempt_after_s=dice.choice((0.0, 60.0, 300.0)),
        most_preemptions_a_day=dice.choice((1, 3)),
        assume_time_s=dice.choice((None, None, 400.0)),
        reserve_cpus=dice.choice((0, 0, 1)),
        reserve_memory=dice.choice((0, 2)),
        limits=limits,
    )


def _work(dice: random.Random, number: int, machine: Machine, policy: Policy) -> Work:
    priority = Priority(dice.choice((0, 0, 1, 1, 1, 2, 3)))
    count = len(machine.devices)
    devices = dice.choice((0, 1, 1, 2, count, dice.randint(0, count))) if count else 0
    devices = min(devices, count)
    names = [device.name for device in machine.devices]
    cpus = dice.choice((1, 1, 2, dice.randint(1, machine.cpus)))
    memory = dice.choice((None, 1, 2, 4)) if machine.memory else None
    most = machine.cpus - policy.reserve_cpus
    array = "tasks" if dice.random() < 0.15 else ""
    if dice.random() < 0.03:
        # More than the machine has.
        devices, cpus, memory = dice.choice(((count + 1, 1, None), (0, most + 1, None), (0, 1, 17)))
        most += 1
    job = WaitingJob(
        id=f"job{number}",
        user=dice.choice(USERS),
        groups=("team",) if dice.random() < 0.3 else (),
        priority=priority,
        needs=Needs(
            devices=devices,
            cpus=min(cpus, most),
            memory=memory,
            on=(dice.choice(names),) if devices and names and dice.random() < 0.1 else (),
            exclusive=dice.random() < 0.04,
        ),
        time_s=dice.choice((None, 60.0, 120.0, 300.0, 600.0)),
        submitted_at=round(dice.choice((0.0, dice.uniform(0, CALM_S / 2), dice.uniform(0, CALM_S))), 1),
        held="by ada" if dice.random() < 0.03 else "",
        preemptible=dice.random() < (0.8 if priority is Priority.LOW else 0.3),
        array=array,
        array_limit=2 if array else 0,
    )
    limit = job.time_s or 700.0
    linger_s = dice.choice((0.0, 0.0, 0.0, 5.0))
    leaves_s = dice.choice((10.0, 40.0))
    return Work(
        job,
        run_s=max(1.0, round(min(dice.uniform(1, 1.3 * limit), limit - linger_s), 1)),
        drain_s=round(dice.uniform(0.1, leaves_s - linger_s), 1),
        leaves_s=leaves_s,
        linger_s=linger_s,
        back_off_s=dice.choice((0.0, 0.0, 0.0, 0.0, 45.0)),
        gives_up=dice.random() < 0.15,
    )


def _dependent(dice: random.Random, work: list[Work], number: int) -> Work:
    """Let some jobs wait for one that was submitted before."""
    each = work[number]
    if not number or dice.random() < 0.6:
        return each
    return dataclasses.replace(each, job=replace(each.job, after=(work[dice.randrange(number)].job.id,)))
