"""`holdfast jobs`: the jobs this machine remembers, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.show.cli._options import pipeable
from holdfast.show.cli._out import tell
from holdfast.show.cli._queue import Waiting, queues
from holdfast.show.terminal import harmless

if TYPE_CHECKING:
    from holdfast.record.views import JobView


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pipeable
def command(as_json: bool) -> None:
    """List the jobs this machine remembers, the newest first, and before them what waits in a queue."""
    seen = queues()
    found, queued = seen.survey, seen.waiting
    if as_json:
        from holdfast.record.check_states import check_states
        from holdfast.show.report_json import pretty

        checks = check_states(found.home, found.jobs)
        rows = [
            {
                "id": view.id,
                "name": view.name,
                "state": view.state.value,
                "outcome": view.outcome,
                "code": view.code,
                "phrase": view.phrase,
                "created": view.created,
                "ended": view.ended,
                "host": view.host,
                "pid": view.pid,
                "attempts": view.attempts,
                "checks": checks.get(view.id),
                "platform": view.platform,
                "queued": seen.again.get(view.id, view.queued) or None,
            }
            for view in found.jobs
        ]
        tell(pretty({"schema": "holdfast.jobs/1", "jobs": rows, "queued": queued}))
        return
    if not found.jobs and not queued:
        tell(f"no job has run yet with its state in {found.home}")
        return
    lines: list[tuple[str, ...]] = [("JOB", "NAME", "STATE", "CODE", "WHAT", "ATTEMPTS", "STARTED", "TOOK")]
    lines += [*map(_queued_row, queued), *(row(view, seen.again.get(view.id, "")) for view in found.jobs)]
    of_platform = [*(each.platform for each in queued), *(view.platform for view in found.jobs)]
    if platforms := {known.platform for known in of_platform if known is not None}:
        titled = [" ".join(sorted(platforms)).upper(), *(harmless(known.id) if known else "" for known in of_platform)]
        lines = [(line[0], known_as, *line[1:]) for line, known_as in zip(lines, titled, strict=True)]
    tell(table(lines))


def _queued_row(job: Waiting) -> tuple[str, ...]:
    """One that has not begun: it has no id of ours yet."""
    return "-", harmless(job.name), job.state, "", harmless(job.reason), "", "", ""


def row(view: JobView, queued: str) -> tuple[str, ...]:
    """One job as the words of its line. `queued`: why it waits, where it does."""
    import time

    from holdfast.model.in_words import duration
    from holdfast.record.local_time import clock

    until = time.time() if view.ended is None else view.ended
    return (
        view.id,
        harmless(view.name),
        view.outcome.value if view.outcome else view.state.value,
        "" if view.code is None else str(view.code),
        view.phrase or harmless(queued),
        str(view.attempts or ""),
        clock(view.created),
        duration(until - view.created),
    )


def table(rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as their widest word, two blanks between them."""
    wide = [max(len(line[column]) for line in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(f"{word:<{wide[at]}}" for at, word in enumerate(line)).rstrip() for line in rows)
