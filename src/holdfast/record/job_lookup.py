"""Finds a job by its id, its name, or its id on the platform."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.errors import BadUsage
from holdfast.model.job_spec import PlatformJob
from holdfast.record.job_views import JobView, Survey
from holdfast.record.owner_lock import OwnerInfo, read_owner


class _Known(Protocol):
    @property
    def created(self) -> float: ...
    @property
    def platform(self) -> PlatformJob | None: ...


K = TypeVar("K", bound=_Known)


#: Stands for the newest job, because the user names none.
LAST = ""
#: Users may type a part of an id with at least this many letters. A shorter text is probably a mistyped name.
_LEAST_LETTERS = 4
_NAMED = 4


def find(survey: Survey, job: str) -> JobView:
    """Find the job with this id, or else the newest with this name, or else the newest with this id on its platform.

    `LAST` finds the newest job. If nothing else fits, a unique part of an id does: its start, or the part after its
    last hyphen. Raises `BadUsage`, with the most similar names and ids, if no job matches.
    """
    if job == LAST and survey.jobs:
        return survey.jobs[0]
    if not job.isascii():
        import unicodedata

        job = unicodedata.normalize("NFC", job)  # the stored names of jobs are in this normal form too
    for view in survey.jobs:
        if view.id == job:
            return view
    for view in survey.jobs:
        if view.name == job:
            return view
    if of_platform := of_id(survey.jobs, job):
        return of_platform[0]
    if tasks := tasks_of(survey.jobs, job):
        raise BadUsage(
            f"{job} is an array of {len(tasks)} jobs: expected one of them, {tasks[0]} to {tasks[-1]}",
            hint=f"holdfast jobs | grep {job}_",
        )
    if (short := _of_part(survey, job)) is not None:
        return short
    if not survey.jobs:
        said = f"there is no job `{job}`" if job else "there is no last job"
        raise BadUsage(
            f"{said}: {survey.home} remembers no job at all",
            hint="holdfast run --name NAME SCRIPT, or set HOLDFAST_HOME to where the job ran",
        )
    import difflib

    known = list(dict.fromkeys([view.name for view in survey.jobs] + [view.id for view in survey.jobs]))
    near = difflib.get_close_matches(job, known, n=3, cutoff=0.5)
    meant = f"; the nearest are {', '.join(f'`{name}`' for name in near)}" if near else ""
    raise BadUsage(
        f"there is no job `{job}` in {survey.home}: expected a job's id or name{meant}", hint="holdfast jobs"
    )


def _of_part(survey: Survey, part: str) -> JobView | None:
    """Return the only job whose id begins with `part`, or ends with it after the last hyphen; None if there is none.
    Raises `BadUsage` if there are several.
    """
    if len(part) < _LEAST_LETTERS:
        return None
    meant = [view for view in survey.jobs if view.id.startswith(part) or view.id.rpartition("-")[2] == part]
    if len(meant) > 1:
        more = f" and {len(meant) - _NAMED} more" if len(meant) > _NAMED else ""
        named = ", ".join(f"{view.id} ({view.name})" for view in meant[:_NAMED])
        raise BadUsage(
            f"`{part}` begins the ids of {len(meant)} jobs: {named}{more}; expected more letters",
            hint=f"holdfast jobs | grep {part}",
        )
    return meant[0] if meant else None


def of_id(jobs: Iterable[K], number: str) -> list[K]:
    """Return the jobs with this id on a platform, the newest first. One batch script may run several jobs in turn."""
    found = [job for job in jobs if job.platform is not None and job.platform.id == number]
    return sorted(found, key=lambda job: job.created, reverse=True)


def tasks_of(jobs: Iterable[K], array: str) -> list[str]:
    """Return the platform ids of the started tasks of a job array, in order: `42_0`, `42_1` for the array `42`."""
    ids = {job.platform.id for job in jobs if job.platform is not None and job.platform.id.startswith(f"{array}_")}
    return sorted(ids, key=lambda task: (len(task), task))


def runs_of(home: Path, job: PlatformJob) -> list[OwnerInfo]:
    """Return the owners of the jobs under `home` with this id on the platform, the newest first.

    They are read from the jobs' directories, so that a restarted job finds its earlier runs.
    """
    try:
        directories = list((home / "jobs").iterdir())
    except OSError:
        return []
    owners = [owner for directory in directories if (owner := read_owner(directory)) is not None]
    alike = [owner for owner in owners if owner.platform is not None and owner.platform.cluster == job.cluster]
    return [owner for owner in of_id(alike, job.id) if owner.platform and owner.platform.platform == job.platform]
