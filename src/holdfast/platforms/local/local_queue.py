"""This machine's queue, for `jobs`, `show`, `logs` and `stop`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast.clock import Clock
from holdfast.model.noun_base import Noun
from holdfast.platforms.job_queue import QueueEntry, QueueUnknown
from holdfast.queue.core_client import NoCore, ask_if_any, rows_of
from holdfast.queue.core_messages import CancelJob
from holdfast.queue.core_place import machine_id
from holdfast.queue.job_start import SUBMISSION_NAME
from holdfast.reactor import pause
from holdfast.record.state_directory import home_of

#: Longest time between the creation of a job's directory and the core's answer to `submit`, in seconds.
SUBMITTING_S = 60.0
_NEWEST = 100


class CoreReply(Noun, frozen=True, kw_only=True):
    """The core's answer to a command about one job."""

    ok: bool
    said: str = ""
    out: str = ""
    err: str = ""
    unknown: bool = False


class LocalQueue:
    """Asks the core of this machine."""

    def __init__(self) -> None:
        self._entries: Mapping[str, QueueEntry] | QueueUnknown | None = None

    def entries(self) -> Mapping[str, QueueEntry] | QueueUnknown:
        if self._entries is None:
            try:
                rows = rows_of(home_of(os.environ))
            except NoCore as error:
                self._entries = QueueUnknown(why=error.message, passes=True)
                return self._entries
            found = {row.id: QueueEntry(state=row.state, reason=row.why, begins=row.starts_at) for row in rows}
            self._entries = dict.fromkeys(_being_submitted(), QueueEntry(state="queued")) | found
        return self._entries

    def cluster(self) -> str:
        return machine_id()

    def may_begin(self, entry: QueueEntry) -> bool:
        return entry.state == "queued"

    def cancel(self, number: str, *, waiting: bool) -> CoreReply:
        self._entries = None
        try:
            answer = ask_if_any(home_of(os.environ), CancelJob(id=number))
        except NoCore as error:
            return CoreReply(ok=False, said=error.message)
        if answer is None:
            return CoreReply(ok=False, said="it is not in the queue", unknown=True)
        return CoreReply(ok=answer.ok, said=answer.message, unknown=answer.unknown)

    def begins(self, number: str) -> bool:
        self._entries = None
        known = self.entries()
        entry = known.get(number) if not isinstance(known, QueueUnknown) else None
        return entry is not None and entry.state == "running"

    def wait(self, seconds: float) -> None:
        pause(seconds)
        self._entries = None

    def beside(self, number: str, node: str, words: Sequence[str]) -> CoreReply:
        """The owner of a job of this queue is on this machine, and commands ask it directly."""
        return CoreReply(ok=False, said=f"it runs on {node}: holdfast {words[0]} has to be typed there")

    def look_command(self, number: str) -> str:
        return f"holdfast queue --explain {number}"

    def end_command(self, number: str) -> str:
        return f"holdfast stop {number} --reason TEXT"

    def past_command(self, number: str) -> str:
        return f"holdfast show {number}"


def _being_submitted() -> list[str]:
    """Return the ids of jobs whose submission began a moment ago, so that the core may not have them yet."""
    folder = home_of(os.environ) / "jobs"
    try:
        newest = sorted(entry.name for entry in folder.iterdir())[-_NEWEST:]
    except OSError:
        return []
    now = Clock().now()
    found = []
    for name in newest:
        try:
            began = (folder / name / SUBMISSION_NAME).stat().st_mtime
        except OSError:
            continue  # the job was not submitted to this queue, or it has ended
        if 0 <= now - began < SUBMITTING_S:
            found.append(name)
    return found
