"""The output of `holdfast run --events`: one JSON object per line. Its keys and kinds of events are never renamed."""

from __future__ import annotations

import enum
from typing import Any

from holdfast.model.noun_base import Noun

SCHEMA = "holdfast.event/1"


class EventKind(enum.StrEnum):
    """The kinds of events. `--on-event` uses the same names."""

    JOB_STARTED = "job_started"
    ATTEMPT_STARTED = "attempt_started"
    NODE_JOINED = "node_joined"
    NODE_LOST = "node_lost"
    WORKER_EXITED = "worker_exited"
    HANG_FOUND = "hang_found"
    DEVICE_HELD = "device_held"
    STOP_REQUESTED = "stop_requested"
    ATTEMPT_ENDED = "attempt_ended"
    JOB_ENDED = "job_ended"


class EventLine(Noun, frozen=True, kw_only=True):
    """One event, as one line of the output."""

    event: EventKind
    #: When the event happened, in seconds since the epoch.
    at: float
    #: The event in one sentence.
    text: str
    #: The keys that only this kind of event has. They are printed beside the common keys.
    body: dict[str, Any]
