"""Compares the environment of a worker with that of the attempt before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.model.environment_diff import FILE, MOST_BYTES, OWN, Difference, differences
from holdfast.model.noun_base import Noun
from holdfast.safe_files import read_file
from holdfast.untrusted import Malformed, json_as


class EnvironmentComparison(Noun, frozen=True, kw_only=True):
    """The environments of one rank in two attempts."""

    #: The number of the earlier attempt.
    before: int
    differences: tuple[Difference, ...]
    #: Variables that differ between any two attempts; they are not compared.
    own: tuple[str, ...] = tuple(sorted(OWN))


def compare_environments(directories: Sequence[tuple[int, Path]], attempt: int) -> EnvironmentComparison | None:
    """Compare the rank's environment in `attempt` with that in the attempt before.

    `directories`: (attempt, the rank's log directory). None: one of the two attempts saved no environment.
    """
    earlier = [number for number, _ in directories if number < attempt]
    places = dict(directories)
    if not earlier or attempt not in places:
        return None
    before = max(earlier)
    old, new = _kept(places[before]), _kept(places[attempt])
    return EnvironmentComparison(before=before, differences=differences(old, new)) if old and new else None


def _kept(directory: Path) -> dict[str, str]:
    """Read the saved environment; empty if there is none or it cannot be read."""
    try:
        return json_as(read_file(directory / FILE, MOST_BYTES), dict[str, str], most_bytes=MOST_BYTES)
    except (OSError, Malformed):
        return {}
