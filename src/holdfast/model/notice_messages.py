"""The messages from a job's owner to the helper process that sends notices to users and programs."""

from __future__ import annotations

import enum
from typing import Any

from holdfast.model.noun_base import Noun


class NoticeKind(enum.StrEnum):
    """The events that run a user's notice command."""

    JOB_STARTED = "job_started"
    #: A restarted owner, or another run of the job, continues the job.
    JOB_CONTINUED = "job_continued"
    ATTEMPT_ENDED = "attempt_ended"
    HANG_FOUND = "hang_found"
    DEVICE_HELD = "device_held"
    BUDGET_NEARLY_SPENT = "budget_nearly_spent"
    JOB_ENDED = "job_ended"


class NoticePlan(Noun, frozen=True, kw_only=True):
    """The receivers of notices. `notify` contains secrets, so this struct is never stored or printed."""

    on_event: str = ""
    on_end: str = ""
    notify: tuple[str, ...] = ()
    #: The path of a Markdown file that each notice is appended to.
    summary: str = ""
    traces: bool = False
    limit_s: float = 30.0

    def __repr__(self) -> str:
        return "NoticePlan()"


class Beginning(Noun, frozen=True, kw_only=True):
    """The first line on the notice process's standard input."""

    plan: NoticePlan
    job: str
    name: str
    home: str


class Notice(Noun, frozen=True, kw_only=True):
    """A notice: each further line on the notice process's standard input."""

    kind: NoticeKind
    #: The text of the notice in one sentence.
    text: str
    #: The identity of a notice's content. A person gets notices with equal fingerprints only once.
    fingerprint: str = ""
    #: Whether the notice is urgent enough to wake a person.
    wakes: bool = False
    #: The data for the user's command: `report`, and further keys for this kind of notice.
    body: dict[str, Any] = {}
    variables: dict[str, str] = {}
