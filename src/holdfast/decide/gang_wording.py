"""The gang's messages to users: too few nodes or devices, a time limit, a lost attempt, a journal that cannot be
written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.decide.device_binding import lack
from holdfast.model.evidence import CheckFailure, StopRequest, StopSource
from holdfast.model.exit_report import ExitReport
from holdfast.model.faults import DeviceStanding, Standing
from holdfast.model.job_spec import JobSpec, NodeInfo
from holdfast.model.phrases import Phrase


def too_few_places(
    spec: JobSpec,
    nodes: Sequence[NodeInfo],
    avoid: Collection[str],
    kept_out: Sequence[DeviceStanding],
    day: Callable[[DeviceStanding], str],
) -> CheckFailure:
    """Return the check failure for a job that lacks healthy nodes or devices. `kept_out`: the excluded devices. `day`:
    returns since when a device is excluded, as text.
    """
    size, short = spec.world_size, lack(spec, nodes)
    short = short and f": {short}"
    known = {kept.device: f"{kept.device} ({kept.standing} since {day(kept)})" for kept in kept_out}
    left_out = ", ".join(known.get(name, name) for name in sorted(avoid)) or "nothing"
    held = tuple(kept.device for kept in kept_out) or tuple(sorted(avoid))
    return CheckFailure(
        check="standing" if held else "placement",
        message=f"too few places for {size} worker{'s'[: size > 1]}{short}; left out so far: {left_out}",
        solution=_release(kept_out, held) or (ASK_LESS if short else ""),
        nodes=held,
        blame="hardware" if held else "workload",
    )


ASK_LESS = "Let `resources` of the job file ask for less, or run it with --no-bind: workers then share what is there."


def _release(kept_out: Sequence[DeviceStanding], names: Sequence[str]) -> str:
    """Return advice on how to make the first of the excluded devices usable again: release it, or wait for the end of
    its fault.
    """
    if not names:
        return ""
    first = next((kept for kept in kept_out if kept.device == names[0]), None)
    if first is None or first.standing is Standing.HELD or not first.codes:
        return f"Repair or replace it, then: holdfast release {names[0]} --reason TEXT"
    command = f"holdfast faults report --device {first.device} --code {first.codes[0]} --recover"
    return f"Repair or replace it; once its fault is over, and nothing has told so: {command}"


def time_limit(limit_s: float, now: float) -> StopRequest:
    """Return the stop request for a job that has reached its time limit. `limit_s`: the limit in seconds."""
    return StopRequest(
        reason=f"the job reached its time limit of {limit_s:g} s",
        solution="Give it more time (--time-limit SECONDS), or save checkpoints and resume from the last.",
        source=StopSource.TIME_LIMIT,
        phrase=Phrase.TIME_LIMIT_REACHED,
        at=now,
    )


def forgotten(node: str, attempt: int, now: float) -> StopRequest:
    """Return the stop request for an attempt that the owner's journal has lost. It ends the attempt, not the job."""
    return StopRequest(
        reason=f"{node} is at attempt {attempt}, and the owner's journal has lost how that began",
        solution="Nothing to do: the job goes on. Look at the disk of the owner's machine if this happens again.",
        source=StopSource.SUPERVISOR,
        phrase=Phrase.SCHEDULER_ERROR,
        at=now,
        final=False,
    )


def unsaved(trouble: str, last: ExitReport | None, now: float) -> StopRequest:
    """Return the stop request for a job whose journal cannot be written. `trouble`: the write error. `last`: the report
    of the previous attempt.
    """
    before = f"; the attempt before ended with {last.phrase}: {last.reason}" if last else ""
    return StopRequest(
        reason=f"no attempt may begin while the journal cannot be written: {trouble}{before}",
        solution="Make room on the journal's disk, or name another place with HOLDFAST_HOME, and start the job again.",
        source=StopSource.JOURNAL,
        phrase=Phrase.SCHEDULER_ERROR,
        at=now,
    )
