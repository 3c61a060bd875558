"""`holdfast prune`: removes old jobs, by number, age and size."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.job_access.job_retention import keep_of, kept_out, prunable_jobs, size
from holdfast.cli.options.completion_values import jobs as complete_jobs
from holdfast.cli.options.shared_options import home, pipeable, survey
from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage
from holdfast.model.human_format import counted

if TYPE_CHECKING:
    from holdfast.record.job_pruning import PrunableJob, PruneResult, RetentionLimits
    from holdfast.record.job_views import JobView, Survey


@click.command()
@click.argument("jobs", nargs=-1, metavar="[JOB...]", shell_complete=complete_jobs)
@click.option("--keep-jobs", metavar="N", help="Keep the newest N jobs; 0: no limit.")
@click.option("--keep-days", metavar="N", help="Keep jobs that ended in the last N days; 0: no limit.")
@click.option("--keep-size", metavar="SIZE", help="Keep the newest jobs up to this total size: 20G, 1.5T.")
@click.option("--dry-run", is_flag=True, help="Print which jobs would be removed, and remove none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pipeable
def command(
    jobs: tuple[str, ...],
    keep_jobs: str | None,
    keep_days: str | None,
    keep_size: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove old jobs: their logs, their reports and their entries in the journal.

    Limits that you do not type come from the settings (holdfast config). With JOB, only these jobs are removed. A
    running job stays, and so does a job with evidence about a device that is HELD or ISOLATED.
    """
    from holdfast.record.job_pruning import PruneResult, of_this_machine, prune
    from holdfast.settings.resolved_settings import resolve

    typed = {"keep-jobs": keep_jobs, "keep-days": keep_days, "keep-size": keep_size}
    where = home()
    settings = resolve(typed, os.environ, where)
    found = survey()
    if jobs and any(typed.values()):
        raise BadUsage("JOB and a limit were given: expected one of them", hint=f"holdfast prune {jobs[0]}")
    keep = keep_of(settings)
    old = _named(found, jobs) if jobs else prunable_jobs(found, keep)
    kept = [(each.view.id, f"it is a job of {each.view.host}") for each in old if not of_this_machine(each.view)]
    own = [each for each in old if of_this_machine(each.view)]
    done = prune(where, own, evidence_of=kept_out(), dry_run=dry_run)
    done = PruneResult(gone=done.gone, kept=(*kept, *done.kept))
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty(_object(done, keep, dry_run)))
        return
    for why, stay in _by_reason(done.kept).items():
        who = f"job {stay[0]} stays" if len(stay) == 1 else f"{len(stay)} jobs stay, {stay[0]} to {stay[-1]}"
        say(f"{who}: {why}")
    if not done.gone:
        print_line(f"nothing to throw away: {counted(len(found.jobs), 'job')} in {where}")
        return
    for each in done.gone:
        view = each.view
        print_line(f"{view.id}  {view.name}  {size(each.size_bytes)}  {each.why}")
    word = "would go" if dry_run else "is gone" if len(done.gone) == 1 else "are gone"
    print_line(f"{len(done.gone)} of {counted(len(found.jobs), 'job')} {word}, {size(done.size_bytes)}")


def _by_reason(kept: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return a map from each reason to the ids of the jobs that stay for this reason, in order."""
    found: dict[str, list[str]] = {}
    for job, why in sorted(kept):
        found.setdefault(why, []).append(job)
    return found


def _named(found: Survey, names: tuple[str, ...]) -> list[PrunableJob]:
    from holdfast.record.job_lookup import find
    from holdfast.record.job_pruning import PrunableJob
    from holdfast.record.job_views import JobState

    chosen: dict[str, JobView] = {view.id: view for view in (find(found, name) for name in names)}
    for view in chosen.values():
        if view.state is not JobState.ENDED:
            raise BadUsage(
                f"job {view.id} ({view.name}) is {view.state.value}, and stays",
                hint=f"holdfast stop {view.id} --reason TEXT",
            )
    return [PrunableJob(view=view, size_bytes=0, why="as asked") for view in chosen.values()]


def _object(done: PruneResult, keep: RetentionLimits, dry_run: bool) -> dict[str, Any]:
    return {
        "schema": "holdfast.pruned/1",
        "dry_run": dry_run,
        "keep": {"jobs": keep.jobs, "days": keep.days, "size_bytes": keep.size_bytes},
        "pruned": [
            {"id": each.view.id, "name": each.view.name, "size_bytes": each.size_bytes, "why": each.why}
            for each in done.gone
        ],
        "kept": [{"id": job, "why": why} for job, why in done.kept],
        "size_bytes": done.size_bytes,
    }
