"""Find jobs without a supervisor that wait in their platform's queue for a restart."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.platforms.job_queue import QueueUnknown
from holdfast.platforms.platform_registry import queue_of, title_of
from holdfast.record.job_views import JobView


def started_again(jobs: Iterable[JobView]) -> dict[str, str]:
    """Return the jobs without a supervisor that their platform may restart, as a map from job id to reason."""
    found = {}
    for view in jobs:
        queue = queue_of(view.platform.platform) if view.platform is not None else None
        if view.platform is None or queue is None:
            continue
        known = queue.entries()
        if isinstance(known, QueueUnknown):
            if known.passes:
                found[view.id] = known.why
            continue
        entry = known.get(view.platform.id)
        if entry is not None and queue.may_begin(entry):
            why = f" ({entry.reason})" if entry.reason else ""
            found[view.id] = f"{title_of(view.platform.platform)} has it in its queue: {entry.state}{why}"
    return found
