"""Steps that a job did more than once: what a restart has cost, told by `holdfast.progress`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.decisions import AttemptRecord


def lost_steps(attempts: Iterable[AttemptRecord]) -> list[tuple[AttemptRecord, int]]:
    """Attempts whose last steps a later one did once more, and how many: only where both call `holdfast.progress`."""
    found = []
    last: AttemptRecord | None = None
    for record in attempts:
        first = record.tally.first_step
        if last is not None and last.step is not None and first is not None and first <= last.step:
            found.append((last, last.step - first + 1))
        if record.step is not None:
            last = record
    return found


def lost_by_attempt(attempts: Iterable[AttemptRecord]) -> dict[int, int]:
    """Number of an attempt → how many of its steps were lost, for those that lost any."""
    return {record.attempt: lost for record, lost in lost_steps(attempts)}
