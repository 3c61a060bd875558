"""The requests that commands send to the core, one JSON line each, and the core's answers."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.decide.queue.queue_model import Needs
from holdfast.model.codec import encode
from holdfast.model.noun_base import Message, Noun
from holdfast.untrusted import json_as

#: Longest request in bytes.
LINE_BYTES = 64 << 10
#: Longest answer in bytes. The list of 10,000 jobs fits.
ANSWER_BYTES = 16 << 20


class SubmitJob(Message, frozen=True, kw_only=True):
    """Accept a job. Its directory exists, with the command in it."""

    id: str
    name: str
    #: `cpus` 0: the job gets its share of the machine. `on` has names or numbers.
    needs: Needs
    #: Whether the user has said how many devices the job needs.
    devices_known: bool
    workers: int = 1
    priority: str = "normal"
    #: Longest time on the devices, in seconds; None: unknown.
    time_s: float | None = None


class CancelJob(Message, frozen=True, kw_only=True):
    """Remove a waiting job."""

    id: str


class SetPriority(Message, frozen=True, kw_only=True):
    """Change the priority of a waiting or running job."""

    id: str
    priority: str


class ListQueue(Message, frozen=True, kw_only=True):
    """List all jobs that wait or run."""


class AwaitEnd(Message, frozen=True, kw_only=True):
    """Answer when the job has ended."""

    id: str


class GetStatus(Message, frozen=True, kw_only=True):
    """Describe the core."""


class ShutDown(Message, frozen=True, kw_only=True):
    """End the core. Jobs that run go on, and waiting jobs keep their places."""


Request = SubmitJob | CancelJob | SetPriority | ListQueue | AwaitEnd | GetStatus | ShutDown


class QueueRow(Noun, frozen=True, kw_only=True):
    """One job of the queue, as `holdfast queue` shows it. Times are in seconds since the epoch."""

    id: str
    name: str
    user: str
    #: `queued` or `running`.
    state: str
    priority: str
    #: Names of the job's devices; empty while it waits.
    devices: tuple[str, ...] = ()
    needs: Needs
    #: Why the job waits; empty if it runs.
    why: str = ""
    #: Expected start of a waiting job; None if unknown.
    starts_at: float | None = None
    submitted_at: float
    started_at: float | None = None
    #: When the job's time limit ends it, at the latest; None without a limit.
    ends_at: float | None = None


class CoreAnswer(Noun, frozen=True, kw_only=True):
    """The core's answer to one request."""

    ok: bool = True
    #: A sentence for the user.
    message: str = ""
    #: A command to type after a refusal.
    hint: str = ""
    #: Whether the core knows no such job.
    unknown: bool = False
    rows: tuple[QueueRow, ...] = ()
    #: Process id of the core, and when it started; for `GetStatus`.
    pid: int | None = None
    since: float | None = None
    running: int = 0
    waiting: int = 0
    #: The final code of an ended job; None if its end is not known.
    code: int | None = None


def request_of(line: bytes) -> Request:
    """Parse a request. Raises `Malformed`."""
    found: Request = json_as(line, Request, most_bytes=LINE_BYTES)
    return found


def answer_of(line: bytes) -> CoreAnswer:
    """Parse an answer. Raises `Malformed`."""
    return json_as(line, CoreAnswer, most_bytes=ANSWER_BYTES)


def line_of(value: Any) -> bytes:
    return encode(value) + b"\n"


def queue_json(rows: tuple[QueueRow, ...]) -> dict[str, Any]:
    """Return the object that `holdfast queue --json` prints."""
    return {"schema": "holdfast.queue/1", "jobs": [msgspec.to_builtins(row) for row in rows]}
