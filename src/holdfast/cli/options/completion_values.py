"""Completes an argument: jobs, checks, failure classes. It writes no file and prints only the completions."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

#: The variable with which a shell passes a completion request for holdfast to click.
VARIABLE = "_HOLDFAST_COMPLETE"
_MOST_JOBS = 200


def jobs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a job. The completions are names first, the newest job's first, and then ids."""
    found = list(_known())
    names = dict.fromkeys(name for _, name, _ in found)
    told = {name: f"{what} {job}" for job, name, what in reversed(found)}
    items = [CompletionItem(name, help=told[name]) for name in names if name.startswith(begun)]
    return items + [CompletionItem(job, help=f"{name} {what}") for job, name, what in found if job.startswith(begun)]


def logs_or_jobs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return [*jobs(context, parameter, begun), CompletionItem(begun, type="file")]


def classes(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a failure class, ignoring upper and lower case."""
    from holdfast.catalogue.exit_rows import load

    rows = sorted({row.phrase: row.what for row in load().rows}.items())
    return [CompletionItem(phrase, help=what) for phrase, what in rows if phrase.lower().startswith(begun.lower())]


def checks(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a check. In a list with commas, complete its last name."""
    from holdfast.node.check_entry import catalogue

    before, comma, last = begun.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{info.name}", help=info.question)
        for info in catalogue((), ())
        if info.name.startswith(last)
    ]


def states(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from holdfast.cli.options.job_filter import STATES

    return [CompletionItem(state) for state in STATES if state.startswith(begun)]


def _known() -> Iterable[tuple[str, str, str]]:
    """Yield the jobs in the journal: id, name, and the failure class (`running` if the job has not ended)."""
    import sqlite3

    from holdfast.record.database import Unusable, open_for_reading
    from holdfast.record.state_directory import home_of

    try:
        db = open_for_reading(home_of(os.environ))
    except Unusable:
        return
    if db is None:
        return
    try:
        rows = db.execute("SELECT id, name, phrase FROM jobs ORDER BY created DESC LIMIT ?", (_MOST_JOBS,))
        for job, name, phrase in rows:
            yield str(job), str(name), str(phrase or "running")
    except sqlite3.Error:
        return
    finally:
        db.close()
