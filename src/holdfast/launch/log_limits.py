"""The size limit of a job's logs, from the user's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadUsage
from holdfast.observe.log_file import Rotation

if TYPE_CHECKING:
    from holdfast.settings.resolved_settings import Settings

#: The smallest size in bytes at which a log is rotated.
LEAST_LOG_BYTES = 4096


def rotation_of(settings: Settings) -> Rotation | None:
    """Return the rotation of logs; None if the user set no size. Raises BadUsage for a value that is not a size."""
    limit = settings.limit("log-size")
    if limit is None:
        return None
    if limit.size_bytes is None:
        raise BadUsage(
            f"{settings.origin('log-size')} {settings.value('log-size')}: expected a size, as in 100M",
            hint="holdfast run --log-size 100M …",
        )
    return Rotation(most_bytes=max(limit.size_bytes, LEAST_LOG_BYTES), kept=settings.count("log-kept") or 0)
