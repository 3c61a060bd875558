"""The steps that a job repeated or lost: the cost of its failures, from `holdfast.progress`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.decisions import AttemptRecord, DecisionKind


def lost_steps(attempts: Iterable[AttemptRecord]) -> list[tuple[AttemptRecord, int]]:
    """Return the attempts whose last steps a later attempt repeated, with the number of these steps.

    Both attempts must call `holdfast.progress`. For the attempt after which a job failed finally: the steps after the
    last saved one, if the program ever reported a saved step.
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
    """Return the number of steps of an attempt after its last saved one; all its steps if it saved none."""
    tally = record.tally
    if record.step is None or tally.first_step is None:
        return 0
    return record.step - (tally.first_step - 1 if tally.saved_step is None else tally.saved_step)


def lost_by_attempt(attempts: Iterable[AttemptRecord]) -> dict[int, int]:
    """Return attempt number → lost steps, for attempts that lost any."""
    return {record.attempt: lost for record, lost in lost_steps(attempts)}
