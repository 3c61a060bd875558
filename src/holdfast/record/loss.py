"""What is known of a job whose supervisor died without a word: put together from what it had written down."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.model.base import Noun
from holdfast.model.commands import MemberState
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.events import (
    AgentReported,
    CheckFailedRunning,
    ChecksFinished,
    ChecksMoved,
    Event,
    EvidenceCollected,
    HangFound,
    JobSubmitted,
)
from holdfast.model.exits import Blame, Evidence, ExitReport, Original, Outcome, Rerun, signal_name
from holdfast.model.in_words import ranks
from holdfast.model.paths import job_dir
from holdfast.record.liveness import LOCK_NAME, Supervisor, survivors
from holdfast.record.local_time import clock
from holdfast.record.places import logs_of

_SHOWN_EVENTS = 5
_SHOWN_LEFT = 8


class Ending(Noun, frozen=True, kw_only=True):
    """What whoever reaped a supervisor knows of its end."""

    pid: int
    signal: int
    at: float
    """Seconds since the epoch."""


def report_of_loss(
    home: Path,
    supervisor: Supervisor,
    events: Sequence[tuple[float, Event]],
    attempts: Sequence[AttemptRecord],
    *,
    boot_id: str,
    ending: Ending | None = None,
    end_left: Callable[[str], frozenset[int]] | None = None,
) -> tuple[JobReport, float]:
    """The report that the supervisor of this job could not write any more, and when it died (epoch seconds).

    Without `ending` that is its last sign of life. `boot_id` is this machine's now: another one than the supervisor's
    means that the machine went down under it. `end_left(job)` kills what lives in the job's control groups: it is asked
    on the machine and boot of the supervisor only, since elsewhere nothing of the job can be.
    """
    last_sign = _last_sign(home, supervisor, events) if ending is None else ending.at
    attempt = max([0, *(attempt_of(event) for _, event in events), *(record.attempt for record in attempts)])
    who = f"holdfast itself (pid {supervisor.pid} on {supervisor.host})"
    known = f"Last known: {last_known(events, attempt)}."
    signal: str | None = None
    left: list[tuple[int, str]] = []
    if boot_id and supervisor.boot_id and boot_id != supervisor.boot_id:
        phrase, code, blame, rerun = _node_failed()
        reason = (
            f"{supervisor.host} went down some time after {clock(last_sign)} and was started again, and {who} and all "
            f"its workers went down with it. {known}"
        )
        solution = (
            f"See why {supervisor.host} went down (`journalctl -b -1 -e`, `last -x | head`, its management "
            "controller), then start the job again."
        )
    else:
        phrase, code, blame, rerun = "KilledBySignal", 137, Blame.UNKNOWN, Rerun.UNKNOWN
        if ending is not None:
            signal = signal_name(ending.signal)
            code = 128 + ending.signal
            reason = f"{who} was ended by {signal} at {clock(ending.at)}; its workers were killed with it. {known}"
        else:
            left = survivors(supervisor.job_id) if supervisor.host == os.uname().nodename else []
            ended, left = _end(supervisor, left, boot_id, end_left)
            reason = (
                f"{who} died at about {clock(last_sign)}, its last sign of life, or later; its workers were killed "
                "with it. It left no report, so something sent it SIGKILL (an operator, a scheduler, the kernel's "
                f"memory killer) or it crashed. {known}{ended}{_left_in_words(left)}"
            )
        solution = (
            f"See who killed it: `journalctl -k | grep -i -E 'killed process|oom'` on {supervisor.host}, the "
            "scheduler's log, or a session that was closed. Then start the job again."
        )
        if left:
            solution = f"End what is left: kill {' '.join(str(pid) for pid, _ in left)}. {solution}"
    report = ExitReport(
        code=code,
        phrase=phrase,
        blame=blame,
        rerun=rerun,
        reason=reason,
        solution=solution,
        hint=f"holdfast logs {supervisor.job_id}",
        original=Original(signal=signal),
        evidence=(
            Evidence(
                kind="signal",
                text="the supervisor's lock is free and the job has no report",
                source=str(job_dir(home, supervisor.job_id) / LOCK_NAME),
                at=last_sign,
            ),
            *(
                Evidence(kind="log", text=f"{clock(at)} {_words(event)}", source="journal", at=at)
                for at, event in events[-_SHOWN_EVENTS:]
            ),
        ),
        attempt=max(attempt, 1),
        fingerprint=phrase,
    )
    known_attempts = tuple(attempts)
    if attempt > max([0, *(record.attempt for record in attempts)]):
        started = next((at for at, event in events if attempt_of(event) == attempt), supervisor.created)
        nobody = Decision(kind=DecisionKind.FAIL, reason="holdfast died with the attempt, so nobody was left to decide")
        known_attempts += (
            AttemptRecord(attempt=attempt, started_at=started, ended_at=last_sign, report=report, decision=nobody),
        )
    job = JobReport(
        job_id=supervisor.job_id,
        name=supervisor.name,
        outcome=Outcome.FAILED,
        report=report,
        attempts=known_attempts,
    )
    return job, last_sign


def _end(
    supervisor: Supervisor,
    left: list[tuple[int, str]],
    boot_id: str,
    end_left: Callable[[str], frozenset[int]] | None,
) -> tuple[str, list[tuple[int, str]]]:
    """Kill what may be killed; a sentence about it, and what lives still."""
    if end_left is None or not boot_id or (supervisor.host, supervisor.boot_id) != (os.uname().nodename, boot_id):
        return "", left
    killed = end_left(supervisor.job_id)
    if not killed:
        return "", left
    names = dict(left)
    shown = ", ".join(
        f"pid {pid}" + (f" ({names[pid][:60]})" if pid in names else "") for pid in sorted(killed)[:_SHOWN_LEFT]
    )
    more = f" and {len(killed) - _SHOWN_LEFT} more" if len(killed) > _SHOWN_LEFT else ""
    lived = "1 process lived" if len(killed) == 1 else f"{len(killed)} processes lived"
    text = f" {lived} on in the job's control groups until this command killed them: {shown}{more}."
    return text, [(pid, command) for pid, command in left if pid not in killed]


def _left_in_words(left: Sequence[tuple[int, str]]) -> str:
    if not left:
        return ""
    shown = ", ".join(f"pid {pid} ({command[:60]})" for pid, command in left[:_SHOWN_LEFT])
    more = f" and {len(left) - _SHOWN_LEFT} more" if len(left) > _SHOWN_LEFT else ""
    return f" What its workers had started lives still: {shown}{more}."


def _node_failed() -> tuple[str, int, Blame, Rerun]:
    from holdfast.catalogue.exits import load

    row = load().row("NodeFailed")
    return row.phrase, row.code, row.blame, row.rerun


def _last_sign(home: Path, supervisor: Supervisor, events: Sequence[tuple[float, Event]]) -> float:
    """The last event, or the last line that a worker wrote: workers die with their supervisor."""
    signs = [supervisor.created, *(at for at, _ in events[-1:])]
    for log in logs_of(home, supervisor.job_id).glob("attempt-*/*/*.log"):
        try:
            signs.append(log.stat().st_mtime)
        except OSError:
            continue  # being removed while we look; the others tell enough
    return max(signs)


def attempt_of(event: Event) -> int:
    """The attempt that an event is about; 0 for those of no attempt."""
    match event:
        case ChecksFinished() | ChecksMoved() | CheckFailedRunning() | HangFound() | EvidenceCollected():
            return event.attempt
        case AgentReported():
            return event.report.attempt
        case _:
            return 0


def last_known(events: Sequence[tuple[float, Event]], attempt: int) -> str:
    """`attempt 2, ranks 0 to 2 up, rank 3 failed`: what the agents last said of this attempt."""
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
            return f"job submitted: {event.spec.world_size} workers"
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
