"""Chooses the receivers of a job's notices: those in the user's options and settings, or else those in the job file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.launch.notice_check import NoticeProblem, notice_problems
from holdfast.model.notice_messages import NoticePlan

if TYPE_CHECKING:
    from holdfast.launch.jobfile.job_file import JobFile
    from holdfast.settings.resolved_settings import Settings


def notice_plan(
    settings: Settings, job: JobFile, environment: Mapping[str, str]
) -> tuple[NoticePlan | None, tuple[NoticeProblem, ...]]:
    """Return the plan of notices, and the reasons why a notice would not arrive. The plan is None if nobody is
    notified.

    `environment`: the variables with which the user's commands will run.
    """
    # false if a worker has started this run: the summary then belongs to the outer run
    own = "HOLDFAST_ATTEMPT" not in os.environ
    summary = (
        settings.text("summary") or job.told.get("summary") or (os.environ.get("GITHUB_STEP_SUMMARY") if own else "")
    )
    asked = {name: settings.text(name) or job.told.get(name) or "" for name in ("on-event", "on-end")}
    notify = settings.names("notify") or job.notify
    traces = bool(settings.flag("traces"))
    if not (summary or notify or traces or any(asked.values())):
        return None, ()
    limit_s = settings.number("notice-timeout")
    plan = NoticePlan(
        on_event=asked["on-event"],
        on_end=asked["on-end"],
        notify=notify,
        summary=str(Path(summary).absolute()) if summary else "",
        traces=traces,
        limit_s=30.0 if limit_s is None else limit_s,
    )
    return plan, tuple(notice_problems(plan, environment))
