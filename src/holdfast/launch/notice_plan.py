"""Chooses the receivers of a job's notices: those in the user's options and settings, or else those in the job file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.launch.jobfile.job_file import JobFile
    from holdfast.model.notice_messages import NoticePlan
    from holdfast.settings.resolved_settings import Settings


def notice_plan(settings: Settings, job: JobFile, environment: dict[str, str]) -> NoticePlan | None:
    """Return the plan of notices, or None if nobody is notified. Remove the addresses of `notify` from the workers'
    `environment`."""
    environment.pop("HOLDFAST_NOTIFY", None)
    own = "HOLDFAST_ATTEMPT" not in os.environ  # false in a run that a worker has started
    summary = (
        settings.text("summary") or job.told.get("summary") or (os.environ.get("GITHUB_STEP_SUMMARY") if own else "")
    )
    asked = {name: settings.text(name) or job.told.get(name) or "" for name in ("on-event", "on-end")}
    notify = settings.names("notify") or job.notify
    traces = bool(settings.flag("traces"))
    if not (summary or notify or traces or any(asked.values())):
        return None
    from holdfast.model.notice_messages import NoticePlan  # imported late, because most runs notify nobody

    limit_s = settings.number("notice-timeout")
    return NoticePlan(
        on_event=asked["on-event"],
        on_end=asked["on-end"],
        notify=notify,
        summary=str(Path(summary).absolute()) if summary else "",
        traces=traces,
        limit_s=30.0 if limit_s is None else limit_s,
    )
