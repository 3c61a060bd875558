"""Explains the end of a job that lost its owner: the owner died without a report, no longer answers, or was never
found by a node."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.catalogue.exit_rows import load
from holdfast.explain.text.sentences import kill_words
from holdfast.model.evidence import LostOwner, LostProcess
from holdfast.model.exit_report import (
    Because,
    Blame,
    Evidence,
    EvidenceKind,
    ExitReport,
    Original,
    OtherRule,
    Rerun,
    signal_name,
)
from holdfast.model.human_format import clock
from holdfast.model.phrases import Phrase

_SHOWN_LEFT = 8


def explain_lost_owner(lost: LostOwner) -> ExitReport:
    """Return the report that the owner could not write, because it died.

    Pure and total, like `holdfast.explain.explain`.
    """
    died = clock(lost.died_at, lost.zone)
    who = f"holdfast itself (pid {lost.pid} on {lost.host})"
    known = f"Last known: {lost.last_known}."
    signal = signal_name(lost.signal) if lost.signal is not None else None
    code, row = 137, None
    solution = (
        f"See who killed it: `journalctl -k | grep -i -E 'killed process|oom'` on {lost.host}, the "
        "scheduler's log, or a session that was closed. Then start the job again."
    )
    if lost.queued or lost.dropped:
        row = load().row(Phrase.STOPPED_BY_OPERATOR)
        why = lost.dropped or "Its platform's queue has it no more: it was cancelled there, or could not start"
        waited = f"It waited to be started again{f': {lost.queued}' if lost.queued else ''}. {known}"
        reason = f"{why}. {waited if lost.begun else 'It had not begun.'}"
        solution = "Nothing to repair: submit the job again when you want it to go on."
    elif lost.host_went_down:
        row = load().row(Phrase.NODE_FAILED)
        reason = (
            f"{lost.host} went down some time after {died} and was started again, and {who} and all its workers went "
            f"down with it. {known}"
        )
        solution = (
            f"See why {lost.host} went down (`journalctl -b -1 -e`, `last -x | head`, its management controller), then "
            "start the job again."
        )
    elif (kill := lost.memory_kill) is not None:
        row = load().row(Phrase.HOST_OUT_OF_MEMORY_KILLED)
        solution = row.solution
        reason = f"{who} was {kill_words(kill)}, at {died}; its workers were killed with it. {known}"
    elif lost.signal is not None:
        code = 128 + lost.signal
        reason = f"{who} was ended by {signal} at {died}; its workers were killed with it. {known}"
    else:
        reason = (
            f"{who} died at about {died}, its last sign of life, or later; its workers were killed with it. It left no "
            "report, so something sent it SIGKILL (an operator, a scheduler, the kernel's memory killer) or it "
            f"crashed. {known}{_killed(lost.killed)}{_left(lost.left)}"
        )
        if lost.left:
            solution = f"End what is left: kill {' '.join(str(each.pid) for each in lost.left)}. {solution}"
    phrase = row.phrase if row is not None else Phrase.KILLED_BY_SIGNAL
    return ExitReport(
        code=row.code if row is not None else code,
        phrase=phrase,
        blame=row.blame if row is not None else Blame.UNKNOWN,
        rerun=row.rerun if row is not None else Rerun.UNKNOWN,
        reason=reason,
        solution=solution,
        hint=f"holdfast logs {lost.job}",
        original=Original(signal=signal),
        evidence=(
            Evidence(
                kind=EvidenceKind.SIGNAL,
                text="the supervisor's lock is free and the job has no report",
                source=lost.lock,
                at=lost.died_at,
            ),
            *(
                Evidence(kind=EvidenceKind.MEMORY, text=kill.text, source=kill.source, at=lost.died_at)
                for kill in (lost.memory_kill,)
                if kill is not None
            ),
            *(
                Evidence(kind=EvidenceKind.LOG, text=f"{clock(at, lost.zone)} {text}", source="journal", at=at)
                for at, text in lost.history
            ),
        ),
        attempt=max(lost.attempt, 1),
        fingerprint=phrase,
        because=Because(rule=OtherRule.OWNER_DIED, row=phrase),
    )


def _killed(killed: Sequence[LostProcess]) -> str:
    if not killed:
        return ""
    lived = "1 process lived" if len(killed) == 1 else f"{len(killed)} processes lived"
    return f" {lived} on in the job's control groups until this command killed them: {_named(killed)}."


def _left(left: Sequence[LostProcess]) -> str:
    return f" What its workers had started lives still: {_named(left)}." if left else ""


def _named(processes: Sequence[LostProcess]) -> str:
    shown = ", ".join(
        f"pid {each.pid}" + (f" ({each.command[:60]})" if each.command else "") for each in processes[:_SHOWN_LEFT]
    )
    more = f" and {len(processes) - _SHOWN_LEFT} more" if len(processes) > _SHOWN_LEFT else ""
    return f"{shown}{more}"


def explain_owner_lost(
    job: str, node: str, owner: str, *, silent_s: float, waited_s: float, attempt: int, workers: int
) -> ExitReport:
    """Return the report of a node whose job has lost its owner.

    job: the job's id.
    node: the name of this node.
    owner: the host name of the owner's machine.
    silent_s: seconds since the owner's last answer.
    waited_s: seconds for which the node waited for an owner.
    attempt: the number of the attempt.
    workers: number of workers that the node has ended.
    """
    row = load().row(Phrase.OWNER_LOST)
    ended = f"its {workers} worker{'s'[: workers != 1]} ended with its lease, and " if workers else ""
    return ExitReport(
        code=row.code,
        phrase=row.phrase,
        blame=row.blame,
        rerun=row.rerun,
        reason=f"the owner of job {job} on {owner} has not answered for {silent_s:.0f} s: {node} waited for it, "
        f"{ended}no owner came back within {waited_s:g} s",
        solution=f"Look at {owner}: power, network, kernel log (journalctl -k -b -1), the scheduler's records. Then "
        "start the job again on all nodes.",
        hint=f"holdfast show {job} (on {owner})",
        original=Original(),
        evidence=(
            Evidence(
                kind=EvidenceKind.CHECK, text=f"no acknowledgement from {owner} for {silent_s:.0f} s", source=node
            ),
        ),
        attempt=max(attempt, 1),
        fingerprint=row.phrase,
        because=Because(rule=OtherRule.OWNER_SILENT, row=row.phrase),
    )


def explain_owner_absent(place: str, *, waited_s: float, last: str) -> ExitReport:
    """Return the report of a node that found no owner.

    place: the owner's address that the node dialled.
    waited_s: seconds for which it tried.
    last: the error of the last try.
    """
    row = load().row(Phrase.GANG_START_TIMEOUT)
    host, _, port = place.rpartition(":")
    last = last.removeprefix(f"no owner answers at {place}: ")
    return ExitReport(
        code=row.code,
        phrase=row.phrase,
        blame=row.blame,
        rerun=row.rerun,
        reason=f"no owner of this job has answered at {place} within {waited_s:g} s" + (f": {last}" if last else ""),
        solution=f"Start the run on the node that hosts the owner ({host}), with the same --rdzv-endpoint, and see "
        f"that port {port} is open from here.",
        hint=f"nc -vz {host.strip('[]')} {port}",
        original=Original(),
        evidence=(Evidence(kind=EvidenceKind.CHECK, text=last or "no answer", source=place),),
        attempt=1,
        fingerprint=row.phrase,
        because=Because(rule=OtherRule.OWNER_ABSENT, row=row.phrase),
    )
