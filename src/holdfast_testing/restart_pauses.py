"""The witness's check of the pause between two attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.decide.recovery.restart_budgets import failed
from holdfast_testing.simulated_world import Violation

if TYPE_CHECKING:
    from holdfast.decide.gang import Gang

HAIR = 1e-6


def kept_pause(gang: Gang, number: int, now: float) -> None:
    """Check the pause before attempt `number`, which begins at `now` (seconds).

    From the second failure in a row on, the pause must be at least half of a back-off that doubles each time.
    """
    policy, row = gang.spec.restarts, 0
    if not failed(gang.records[-1]):
        return
    for record in reversed([record for record in gang.records if failed(record)]):
        row += 1
        if record.progressed:
            break
    least = min(policy.backoff_cap_s, policy.backoff_s * 2.0 ** (row - 2)) / 2 if row >= 2 else 0.0
    waited = now - gang.records[-1].ended_at
    if waited < least - HAIR:
        raise Violation(
            "I10", f"attempt {number} begins {waited:.3f} s after failure {row} in a row, not {least:.3f} s"
        )
