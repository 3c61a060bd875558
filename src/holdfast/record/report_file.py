"""Writes and reads `report.json`: the job's final report in the schema `holdfast.report/1`.

The keys are in the order of their use to readers, and later keys are at the end of their object. The meaning of a key
never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.file_modes import users_umask
from holdfast.model.check_results import ChecksTaken
from holdfast.model.codec import encode
from holdfast.model.decisions import AttemptRecord, Decision, JobReport, lost_by_attempt
from holdfast.model.exit_report import Because, Blame, Culprit, DecidingLine, Evidence, ExitReport, Original, Outcome
from holdfast.model.noun_base import Noun
from holdfast.record.owner_lock import read_owner
from holdfast.record.state_directory import job_dir
from holdfast.safe_files import not_a_file, read_file, replace_file, write_given
from holdfast.untrusted import MOST_BYTES, Malformed, convert, json_as, wrong_time

SCHEMA = "holdfast.report/1"
FILE_NAME = "report.json"


class _StoredReport(Noun, frozen=True, kw_only=True):
    id: str
    name: str


def to_json_object(report: JobReport) -> dict[str, Any]:
    """Convert a job's report to JSON types: strings, numbers, booleans, None, lists and dicts."""
    last, lost = _exit(report.report), lost_by_attempt(report.attempts)
    if last["hint"] is None and report.outcome is Outcome.FAILED:
        last["hint"] = next_command(report)
    return {
        "schema": SCHEMA,
        "job": {"id": report.job_id, "name": report.name},
        "outcome": report.outcome.value,
        **_main(last),
        "attempts": [
            {
                "attempt": record.attempt,
                "started_at": record.started_at,
                "ended_at": record.ended_at,
                "report": _exit(record.report),
                "decision": _decision(record.decision),
                "parts": dict(record.parts),
                "progressed": record.progressed,
                "step": record.step,
                "checks": checks_object(record.checks),
                "signs": [{"kind": sign.kind.value, "text": sign.text} for sign in record.signs],
                "bound": [
                    {"rank": b.rank, "role": b.role, "node": b.node, "cpus": b.cpus, "devices": b.devices}
                    for b in record.bound
                ],
                "workers": record.workers,
                "tally": msgspec.to_builtins(record.tally),
                "lost_steps": lost.get(record.attempt, 0),
            }
            for record in report.attempts
        ],
        **_later(last),
        "checks": checks_object(last_of(report.attempts)),
        _LAST: last[_LAST],
    }


def checks_object(taken: ChecksTaken | None) -> dict[str, Any] | None:
    """Convert a round of checks for report.json and `--json`: its state, whether an earlier result was reused, each
    check's result.
    """
    if taken is None:
        return None
    lines = [
        {"name": c.name, "state": c.state, "message": c.message, "tries": c.tries, "took_s": c.took_s}
        for c in taken.checks
    ]
    return {"state": taken.state.value, "reused": taken.reused, "checks": lines}


def last_of(attempts: Sequence[AttemptRecord]) -> ChecksTaken | None:
    """Return the round of checks before the last ended attempt; None if there is none."""
    return attempts[-1].checks if attempts else None


def exit_report_object(report: ExitReport) -> dict[str, Any]:
    """Convert an attempt's explanation for `holdfast explain --json`: like report.json without the keys about the
    job.
    """
    if report.code == 0:
        outcome = Outcome.SUCCEEDED
    elif report.blame is Blame.OPERATOR:
        outcome = Outcome.STOPPED
    else:
        outcome = Outcome.FAILED
    return {"schema": SCHEMA, "outcome": outcome.value, **_exit(report)}


def from_json_object(data: dict[str, Any]) -> JobReport:
    """Parse a job's report from JSON. Raises `Malformed`, with the key's name, for a wrong key or another schema."""
    if data.get("schema") != SCHEMA:
        raise Malformed(f"`schema` is {data.get('schema')!r}, expected {SCHEMA!r}")
    job = convert(data.get("job"), _StoredReport)
    attempts = convert(data.get("attempts", []), list[AttemptRecord])
    for at in _times(attempts):
        if why := wrong_time(at):
            raise Malformed(why)
    return JobReport(
        job_id=job.id,
        name=job.name,
        outcome=convert(data.get("outcome"), Outcome),
        report=convert(data, ExitReport),
        attempts=tuple(attempts),
    )


def _times(attempts: list[AttemptRecord]) -> Iterator[float]:
    for record in attempts:
        yield from (record.started_at, record.ended_at)


def next_command(report: JobReport) -> str:
    """Return a command that shows the user more about the job's failure."""
    first = report.report.first
    if first is None:
        return f"holdfast show {report.job_id}"
    return f"holdfast logs {report.job_id} --attempt {report.report.attempt} --rank {first.rank}"


def write(home: Path, report: JobReport) -> Path:
    """Write `jobs/<job>/report.json` atomically. Raises OSError."""
    path = job_dir(home, report.job_id) / FILE_NAME
    replace_file(path, _bytes_of(report))
    return path


def write_to(path: Path, report: JobReport, *, users: bool = False) -> Path:
    """Write the report to any file, atomically. A pipe or a device is written directly. Raises OSError.

    users: whether the user has named this file. If so, its mode follows the user's umask.
    """
    if not_a_file(path):
        # A pipe or `/dev/stderr` cannot be replaced by a new file, so write to it directly.
        write_given(path, _bytes_of(report))
    else:
        replace_file(path, _bytes_of(report), 0o666 & ~users_umask() if users else 0o600)
    return path


def _bytes_of(report: JobReport) -> bytes:
    return msgspec.json.format(encode(to_json_object(report)), indent=1) + b"\n"


def read(home: Path, job_id: str) -> JobReport | None:
    """Return the job's report from its directory, or else from the path that the owner used because the disk was full.

    Return None if neither exists.
    """
    return read_in_place(home, job_id) or _elsewhere(home, job_id)


def read_in_place(home: Path, job_id: str) -> JobReport | None:
    """Return the job's report from the job's directory; None if it cannot be read there."""
    return _read_report(job_dir(home, job_id) / FILE_NAME, job_id)


def _elsewhere(home: Path, job_id: str) -> JobReport | None:
    """Return the report at the path in the lock file.

    The owner wrote it there because the job directory's disk was full.
    """
    supervisor = read_owner(job_dir(home, job_id))
    return _read_report(Path(supervisor.report), job_id) if supervisor is not None and supervisor.report else None


def _read_report(path: Path, job_id: str) -> JobReport | None:
    try:
        report = from_json_object(json_as(read_file(path, MOST_BYTES), dict[str, Any]))
    except (OSError, Malformed):
        return None
    return report if report.job_id == job_id else None


def _exit(report: ExitReport) -> dict[str, Any]:
    return {
        "code": report.code,
        "phrase": report.phrase,
        "blame": report.blame.value,
        "rerun": report.rerun.value,
        "reason": report.reason,
        "solution": report.solution,
        "trigger": report.trigger,
        "hint": report.hint,
        "original": _original(report.original),
        "first": _culprit(report.first) if report.first else None,
        "evidence": [_evidence(item) for item in report.evidence],
        "collateral": list(report.collateral),
        "attempt": report.attempt,
        "fingerprint": report.fingerprint,
        "exception": report.exception,
        **({"chain": list(report.chain)} if report.chain else {}),
        **({"alike": list(report.alike)} if report.alike else {}),
        "also": [_culprit(culprit) for culprit in report.also],
        "confidence": report.confidence,
        "devices": list(report.devices),
        **({"source_lines": msgspec.to_builtins(report.source_lines)} if report.source_lines else {}),
        "because": _because(report.because),
    }


_LATER = ("fingerprint", "exception", "chain", "alike", "also", "confidence", "devices", "source_lines")
_LAST = "because"


def _main(whole: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in whole.items() if key not in _LATER and key != _LAST}


def _later(whole: dict[str, Any]) -> dict[str, Any]:
    return {key: whole[key] for key in _LATER if key in whole}


def _original(original: Original) -> dict[str, Any]:
    return {"exit_code": original.exit_code, "signal": original.signal}


def _culprit(culprit: Culprit) -> dict[str, Any]:
    return {
        "role": culprit.role,
        "rank": culprit.rank,
        "node": culprit.node,
        "pid": culprit.pid,
        "at": culprit.at,
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {"kind": evidence.kind, "text": evidence.text, "source": evidence.source, "at": evidence.at}


def _because(because: Because) -> dict[str, Any]:
    line = because.line
    return {
        "rule": because.rule,
        "row": because.row,
        "wording": because.wording,
        "line": _line(line) if line is not None else None,
        "rivals": [
            {"row": each.row, "wording": each.wording, "line": _line(each.line), "against": each.against}
            for each in because.rivals
        ],
    }


def _line(line: DecidingLine) -> dict[str, Any]:
    return {"source": line.source, "number": line.number, "text": line.text}


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "kind": decision.kind.value,
        "reason": decision.reason,
        "charged": decision.charged,
        "delay_s": decision.delay_s,
        "avoid": list(decision.avoid),
    }
