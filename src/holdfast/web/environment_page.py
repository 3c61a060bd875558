"""How the environment of a worker differs from that of the attempt before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.model.environment_diff import FILE, MOST_BYTES, OWN, Difference, differences
from holdfast.model.noun_base import Noun
from holdfast.safe_files import read_file
from holdfast.untrusted import Malformed, json_as


class EnvironmentComparison(Noun, frozen=True, kw_only=True):
    """The environments of one rank in two attempts."""

    #: The earlier attempt of the comparison.
    before: int
    differences: tuple[Difference, ...]
    #: Variables that differ in every two attempts, and are not compared.
    own: tuple[str, ...] = tuple(sorted(OWN))


def compare_environments(directories: Sequence[tuple[int, Path]], attempt: int) -> EnvironmentComparison | None:
    """The comparison with the attempt before. `directories`: those of the rank, by attempt. None: one of the two kept
    no environment."""
    earlier = [number for number, _ in directories if number < attempt]
    places = dict(directories)
    if not earlier or attempt not in places:
        return None
    before = max(earlier)
    old, new = _kept(places[before]), _kept(places[attempt])
    return EnvironmentComparison(before=before, differences=differences(old, new)) if old and new else None


def _kept(directory: Path) -> dict[str, str]:
    """The environment; empty where there is none, or it cannot be read."""
    try:
        return json_as(read_file(directory / FILE, MOST_BYTES), dict[str, str], most_bytes=MOST_BYTES)
    except (OSError, Malformed):
        return {}
