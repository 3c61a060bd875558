"""Steps that a job did twice or for nothing: the cost of its failures, from `holdfast.progress`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.decisions import AttemptRecord, DecisionKind


def lost_steps(attempts: Iterable[AttemptRecord]) -> list[tuple[AttemptRecord, int]]:
    """Attempts whose last steps a later attempt repeated, and how many: only where both call `holdfast.progress`.

    For the attempt after which a job failed for good: its steps after the last saved one, only where the job's program
    has reported a step as saved.
    """
    found = []
    last: AttemptRecord | None = None
    saves = False
    for record in attempts:
        first = record.tally.first_step
        if last is not None and last.step is not None and first is not None and first <= last.step:
            found.append((last, last.step - first + 1))
        if record.step is not None:
            last = record
        saves = saves or record.tally.saved_step is not None
        if saves and record.decision.kind is DecisionKind.FAIL and (lost := _unsaved(record)) > 0:
            found.append((record, lost))
    return found


def _unsaved(record: AttemptRecord) -> int:
    """The steps of an attempt after its last saved one; all of them where it saved none."""
    tally = record.tally
    if record.step is None or tally.first_step is None:
        return 0
    return record.step - (tally.first_step - 1 if tally.saved_step is None else tally.saved_step)


def lost_by_attempt(attempts: Iterable[AttemptRecord]) -> dict[int, int]:
    """Number of an attempt → its lost steps, for attempts that lost any."""
    return {record.attempt: lost for record, lost in lost_steps(attempts)}
