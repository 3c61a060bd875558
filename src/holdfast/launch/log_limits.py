"""How large the logs of a job may get, as its user has set it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.observe.log_file import Rotation
    from holdfast.settings.resolved_settings import Settings

#: A log is rotated at this size or more.
LEAST_LOG_BYTES = 4096


def rotation_of(settings: Settings) -> Rotation | None:
    """At which size a log is rotated. Raises BadUsage for a value that is no size."""
    limit = settings.limit("log-size")
    if limit is None:
        return None
    if limit.size_bytes is None:
        raise BadUsage(
            f"{settings.origin('log-size')} {settings.value('log-size')}: expected a size, as in 100M",
            hint="holdfast run --log-size 100M …",
        )
    from holdfast.observe.log_file import Rotation

    return Rotation(most_bytes=max(limit.size_bytes, LEAST_LOG_BYTES), kept=settings.count("log-kept") or 0)
