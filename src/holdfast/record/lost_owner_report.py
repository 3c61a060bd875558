"""Builds the report on a job whose owner died without one, with evidence from the journal and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.events import (
    AgentReported,
    CheckFailedRunning,
    ChecksFinished,
    ChecksMoved,
    Event,
    EvidenceCollected,
    HangFound,
    HooksFinished,
    JobSubmitted,
)
from holdfast.model.evidence import LostOwner, LostProcess, MemoryKill
from holdfast.model.exit_report import ExitReport, Outcome
from holdfast.model.gang_protocol import MemberState
from holdfast.model.human_format import counted, ranks
from holdfast.model.noun_base import Noun
from holdfast.model.shown_command import shown
from holdfast.record.job_directory import logs_of
from holdfast.record.local_time import local
from holdfast.record.owner_lock import LOCK_NAME, NOT_BEGUN, OwnerInfo
from holdfast.record.state_directory import job_dir

_SHOWN_EVENTS = 5


class OwnerEnd(Noun, frozen=True, kw_only=True):
    """How an owner ended, from the process that reaped it."""

    pid: int
    signal: int
    #: When the owner ended, in seconds since the epoch.
    at: float
    #: The control group's OOM kill, if it explains a SIGKILL; else None.
    memory_kill: MemoryKill | None = None


#: A function that builds the report on a dead owner; the caller passes in `explain.lost_owner.explain_lost_owner`.
ExplainLoss = Callable[[LostOwner], ExitReport]


def report_of_loss(
    home: Path,
    supervisor: OwnerInfo,
    events: Sequence[tuple[float, Event]],
    attempts: Sequence[AttemptRecord],
    explain: ExplainLoss,
    *,
    boot_id: str,
    ending: OwnerEnd | None = None,
    end_left: Callable[[str], frozenset[int]] | None = None,
    dropped: str = "",
) -> tuple[JobReport, float]:
    """Return the job's report in place of the dead owner's, and when the owner died, in seconds since the epoch.

    boot_id: boot id of this machine. If it differs from the owner's, the machine has been rebooted.
    ending: how the owner ended. If None, the owner's last sign of life counts as the time of its death.
    end_left: called with the job's id; kills the processes in the job's control groups and returns their pids. It is
        called only on the owner's machine and boot, because no process can be left elsewhere.
    dropped: who removed the job from its platform's queue; empty: nobody.
    """
    lost = _found(
        home, supervisor, events, attempts, boot_id=boot_id, ending=ending, end_left=end_left, dropped=dropped
    )
    report = explain(lost)
    known_attempts = tuple(attempts)
    if lost.attempt > max([0, *(record.attempt for record in attempts)]):
        started = next((at for at, event in events if attempt_of(event) == lost.attempt), supervisor.created)
        undecided = Decision(kind=DecisionKind.FAIL, reason="holdfast died with the attempt, so it decided nothing")
        known_attempts += (
            AttemptRecord(
                attempt=lost.attempt, started_at=started, ended_at=lost.died_at, report=report, decision=undecided
            ),
        )
    job = JobReport(
        job_id=supervisor.job_id,
        name=supervisor.name,
        outcome=Outcome.STOPPED if lost.queued or lost.dropped else Outcome.FAILED,
        report=report,
        attempts=known_attempts,
    )
    return job, lost.died_at


def _found(
    home: Path,
    supervisor: OwnerInfo,
    events: Sequence[tuple[float, Event]],
    attempts: Sequence[AttemptRecord],
    *,
    boot_id: str,
    ending: OwnerEnd | None,
    end_left: Callable[[str], frozenset[int]] | None,
    dropped: str,
) -> LostOwner:
    """Collect the evidence about the dead owner. Kill the workers that remain because the owner's guard died too. The
    parameters are those of `report_of_loss`.
    """
    died_at = last_sign(home, supervisor, events) if ending is None else ending.at
    attempt = max([0, *(attempt_of(event) for _, event in events), *(record.attempt for record in attempts)])
    went_down = bool(boot_id and supervisor.boot_id and boot_id != supervisor.boot_id)
    killed: tuple[LostProcess, ...] = ()
    left: tuple[LostProcess, ...] = ()
    here = os.uname().nodename
    if not went_down and ending is None and supervisor.host == here:
        commands = dict(_survivors(supervisor.job_id))
        if end_left is not None and boot_id and supervisor.boot_id == boot_id:
            ended = end_left(supervisor.job_id)
            killed = tuple(LostProcess(pid=pid, command=commands.pop(pid, "")) for pid in sorted(ended))
        left = tuple(LostProcess(pid=pid, command=command) for pid, command in commands.items())
    return LostOwner(
        job=supervisor.job_id,
        host=supervisor.host,
        pid=supervisor.pid,
        died_at=died_at,
        signal=ending.signal if ending is not None else None,
        memory_kill=ending.memory_kill if ending is not None else None,
        host_went_down=went_down,
        attempt=attempt,
        last_known=last_known(events, attempt),
        history=tuple((at, _words(event)) for at, event in events[-_SHOWN_EVENTS:]),
        lock=str(job_dir(home, supervisor.job_id) / LOCK_NAME),
        killed=killed,
        left=left,
        queued=supervisor.queued,
        begun=supervisor.queued != NOT_BEGUN,
        dropped=dropped,
        utc_offset_s=local(died_at),
    )


def last_sign(home: Path, supervisor: OwnerInfo, events: Sequence[tuple[float, Event]]) -> float:
    """Return the time of the last event or of the last log line, the later of the two. Workers die with their owner, so
    their logs show when it lived.
    """
    signs = [supervisor.created, *(at for at, _ in events[-1:])]
    for log in logs_of(home, supervisor.job_id).glob("attempt-*/*/*.log"):
        try:
            signs.append(log.stat().st_mtime)
        except OSError:
            continue  # skip a log that was removed after it was listed; the others suffice
    return max(signs)


def attempt_of(event: Event) -> int:
    """Return the number of an event's attempt; 0: none."""
    match event:
        case ChecksFinished() | ChecksMoved() | CheckFailedRunning() | HangFound():
            return event.attempt
        case EvidenceCollected() | HooksFinished():
            return event.attempt
        case AgentReported():
            return event.report.attempt
        case _:
            return 0


def last_known(events: Sequence[tuple[float, Event]], attempt: int) -> str:
    """Summarise the agents' last reports in this attempt: `attempt 2, ranks 0 to 2 up, rank 3 failed`."""
    if not attempt:
        return "no attempt had begun"
    last = events[-1][1] if events else None
    if isinstance(last, ChecksMoved) and last.attempt == attempt:
        return f"attempt {attempt}, pre-checks run"
    parts = [f"attempt {attempt}"]
    reports = {
        event.report.node: event.report
        for _, event in events
        if isinstance(event, AgentReported) and event.report.attempt == attempt
    }
    by_state: dict[MemberState, list[int]] = {}
    for report in reports.values():
        for member in report.members:
            by_state.setdefault(member.state, []).append(member.rank)
    parts += [f"{ranks(numbers)} {state.value}" for state, numbers in by_state.items()]
    return ", ".join(parts)


def _words(event: Event) -> str:
    match event:
        case JobSubmitted():
            return f"job submitted: {counted(event.spec.world_size, 'worker')}"
        case AgentReported():
            states = {f"rank {m.rank} {m.state.value}" for m in event.report.members[:8]}
            return f"{event.report.node}: attempt {event.report.attempt}: {', '.join(sorted(states)) or 'no workers'}"
        case ChecksMoved():
            return f"attempt {event.attempt}: pre-checks {event.taken.state.value}"
        case CheckFailedRunning():
            return f"attempt {event.attempt}: check {event.failure.check} failed"
        case ChecksFinished():
            return f"attempt {event.attempt}: pre-checks {event.state}"
        case _:
            return type(event).__name__


def _survivors(job_id: str) -> list[tuple[int, str]]:
    """Return (pid, command) of this user's processes on this machine that belong to the job by their environment."""
    mark = f"HOLDFAST_JOB={job_id}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append((int(entry.name), shown((entry / "cmdline").read_bytes())))
        except OSError:
            continue  # skip a process that has ended, or belongs to another user
    return sorted(found)
