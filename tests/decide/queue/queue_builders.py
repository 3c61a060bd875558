"""Short ways to write a machine, jobs and a plan of its queue."""

from __future__ import annotations

from typing import Any

from holdfast.decide.queue.queue_model import (
    Device,
    FairShare,
    Machine,
    Needs,
    Policy,
    Priority,
    RunningJob,
    WaitingJob,
)
from holdfast.decide.queue.queue_plan import Plan, plan

GIB = 2**30


def machine(devices: int = 4, cpus: int = 16, **fields: Any) -> Machine:
    """A machine with devices gpu0 …, half of them on each NUMA node."""
    made = tuple(Device(name=f"gpu{index}", index=index, numa=2 * index // devices) for index in range(devices))
    return Machine(devices=made, cpus=cpus, **fields)


def waiting(name: str, devices: int = 1, cpus: int = 1, **fields: Any) -> WaitingJob:
    needs = {key: fields.pop(key) for key in ("memory", "on", "exclusive") if key in fields}
    fields.setdefault("submitted_at", 0.0)
    fields.setdefault("user", "ada")
    return WaitingJob(id=name, needs=Needs(devices=devices, cpus=cpus, **needs), **fields)


def running(name: str, *devices: str, cpus: int = 1, **fields: Any) -> RunningJob:
    fields.setdefault("user", "ada")
    fields.setdefault("started_at", 0.0)
    needs = Needs(devices=len(devices), cpus=cpus, memory=fields.pop("memory", None))
    return RunningJob(id=name, needs=needs, devices=devices, cpus=cpus, **fields)


def victim(name: str, *devices: str, **fields: Any) -> RunningJob:
    """A job that may be preempted."""
    return running(name, *devices, **{"priority": Priority.LOW, "preemptible": True, **fields})


def planned(
    jobs: list[WaitingJob],
    has: list[RunningJob] | None = None,
    *,
    on: Machine | None = None,
    now: float = 1000.0,
    policy: Policy | None = None,
    shares: FairShare | None = None,
) -> Plan:
    return plan(now, on or machine(), has or [], jobs, policy or Policy(), shares or FairShare())


def started(made: Plan) -> dict[str, tuple[str, ...]]:
    return {start.job: start.devices for start in made.starts}
