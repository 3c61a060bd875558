"""`holdfast logs JOB`: what the workers wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.errors import BadUsage
from holdfast.show.cli._elsewhere import copy_log, is_elsewhere, located
from holdfast.show.cli._options import pipeable, say
from holdfast.show.cli._queue import in_queue, told

if TYPE_CHECKING:
    from holdfast.record.views import JobView
    from holdfast.show.logs import LogPart


@click.command()
@click.argument("job")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="This attempt instead of the last one.")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Only this rank.")
@click.option("--stdout", "only_stdout", is_flag=True, help="Only what went to stdout.")
@click.option("--stderr", "only_stderr", is_flag=True, help="Only what went to stderr.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each log.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written, until the job ends.")
@pipeable
def command(
    job: str,
    attempt: int | None,
    rank: int | None,
    only_stdout: bool,
    only_stderr: bool,
    tail: int | None,
    follow: bool,
) -> None:
    """Print a job's logs. JOB is an id, or a name (the newest of that name).

    One log is printed as it is; of several, each line has its worker and stream in front.
    """
    from holdfast.record.views import JobState
    from holdfast.show.logs import STREAMS, chosen, copy, tail_start

    try:
        found, view, note = located(job)
    except BadUsage:
        if not (queued := in_queue(job)):
            raise
        say(f"{told(queued[0]).removeprefix('holdfast: ')}\n  logs       there are none before it begins")
        return
    streams = [name for name, wanted in zip(STREAMS, (only_stdout, only_stderr), strict=True) if wanted] or list(
        STREAMS
    )
    if note is not None and _lies_elsewhere(found.home, view, rank, attempt, follow):
        if rank is None:
            raise BadUsage(
                f"each node of job {note.job_id} has its own logs, and the owner is on {note.owner}: --follow wants "
                "a rank here",
                hint=f"holdfast logs {note.job_id} --rank 0 --follow",
            )
        copy_log(note, found.home, rank=rank, attempt=attempt, streams=streams, tail=tail, follow=follow)
        return
    try:
        number, parts = chosen(found.home, view.id, attempt=attempt, rank=rank, streams=streams)
    except BadUsage as error:
        if note is None or rank is None:
            raise
        raise BadUsage(
            f"{error.message}: job {view.id} ran on several nodes, and a log stays on its rank's node",
            hint=f"ssh {note.owner} holdfast logs {view.id} --rank {rank}, or on the node that the report names",
        ) from None
    runs = view.state is JobState.RUNNING
    if follow and runs:
        _follow(found.home, view, attempt, rank, streams, tail)
        return
    if not parts:
        say(f"job {view.id} has written no logs{' yet' if runs else ''}")
        return
    if attempt is None and number > 1:
        say(f"attempt {number}, the last; others with --attempt 1 to {number - 1}")
    out = sys.stdout.buffer
    several = len(parts) > 1
    for part in parts:
        start = 0 if tail is None else tail_start(part.path, tail)
        copy(part, out.write, start=start, prefixed=several)
    out.flush()
    if not any(Path(part.path).stat().st_size for part in parts):
        say(f"attempt {number} of job {view.id}: nothing was written to {'these logs' if several else parts[0].path}")


def _lies_elsewhere(home: Path, view: JobView, rank: int | None, attempt: int | None, follow: bool) -> bool:
    """Whether the owner of a job over several nodes has to be asked for a log."""
    from holdfast.record.views import JobState
    from holdfast.show.logs import attempts_of, parts_of

    if view.state is JobState.ENDED:
        return False  # the ends of failed ranks' logs are here
    if rank is None:
        return follow and is_elsewhere(view)
    if follow and is_elsewhere(view):
        return True  # only the owner tells when the job ends
    number = attempt if attempt is not None else max(attempts_of(home, view.id), default=0)
    return rank not in {part.rank for part in parts_of(home, view.id, number)}


def _follow(
    home: Path, view: JobView, attempt: int | None, rank: int | None, streams: list[str], tail: int | None
) -> None:
    from holdfast.record.home import job_dir
    from holdfast.record.owner_lock import LOCK_NAME
    from holdfast.record.places import logs_of
    from holdfast.show.follow import Watch
    from holdfast.show.logs import attempts_of, copy, parts_of, tail_start

    out = sys.stdout.buffer
    # With one stream of one rank there is nothing to tell apart, and a progress bar may be passed on as it comes.
    prefixed = rank is None or len(streams) > 1
    positions: dict[str, int] = {}
    first = True
    began = max(attempts_of(home, view.id), default=1) if attempt is None else attempt

    def wanted() -> list[LogPart]:
        numbers = [n for n in attempts_of(home, view.id) if (n >= began if attempt is None else n == attempt)]
        parts = [part for n in numbers for part in parts_of(home, view.id, n)]
        return [part for part in parts if part.stream in streams and rank in (None, part.rank)]

    def pump(part: LogPart, *, last: bool = False) -> None:
        start = positions.get(part.path)
        if start is None:
            start = tail_start(part.path, tail) if first and tail is not None else 0
        whole = prefixed and not last
        positions[part.path] = copy(part, out.write, start=start, prefixed=prefixed, whole_lines=whole)

    def directories() -> list[Path]:
        top, logs = job_dir(home, view.id), logs_of(home, view.id)
        attempts = [logs / f"attempt-{number}" for number in attempts_of(home, view.id)]
        return [top, logs, *attempts, *(worker for each in attempts for worker in each.glob("*-*"))]

    with Watch(job_dir(home, view.id) / LOCK_NAME) as watch:
        parts: dict[Path, LogPart] = {}
        others: set[Path] = set()
        changed: set[Path] | None = set()
        while changed is not None:
            if not changed or not changed <= parts.keys() | others:
                # A directory made while another was being added is found by the next round.
                while sum(watch.add(directory) for directory in directories()):
                    pass
                parts = {Path(part.path): part for part in wanted()}
                # Logs that were not asked for change too, and need no new look at the directories.
                others = {path for path in changed if path.suffix == ".log"} - parts.keys()
                changed = set(parts)
            for path in sorted(changed & parts.keys()):
                pump(parts[path])
            first = False
            out.flush()
            changed = watch.wait()
        for part in wanted():
            pump(part, last=True)
        out.flush()
