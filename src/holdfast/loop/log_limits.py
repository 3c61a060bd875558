"""How large the logs of a job get, as its user has said it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.observe.logfile import Rotation
    from holdfast.settings.chosen import Settings

LEAST_LOG_BYTES = 4096
"""A log that is put aside is at least so large."""


def rotation_of(settings: Settings) -> Rotation | None:
    """When a log is put aside. Raises BadUsage for what is no size."""
    limit = settings.limit("log-size")
    if limit is None:
        return None
    if limit.size_bytes is None:
        raise BadUsage(
            f"{settings.origin('log-size')} {settings.value('log-size')}: expected a size, as in 100M",
            hint="holdfast run --log-size 100M …",
        )
    from holdfast.observe.logfile import Rotation

    return Rotation(most_bytes=max(limit.size_bytes, LEAST_LOG_BYTES), kept=settings.count("log-kept") or 0)
