"""`holdfast queue`: shows the jobs that wait and run in this machine's queue, and why they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options.completion_values import jobs
from holdfast.cli.options.shared_options import home, pipeable, utc_option
from holdfast.cli.output.printing import print_line
from holdfast.cli.output.table import table
from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.queue.core_messages import QueueRow


@click.command()
@click.option("--explain", "job", metavar="JOB", shell_complete=jobs, help="All that is known of one job.")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pipeable
def command(job: str | None, as_json: bool) -> None:
    """Show this machine's queue: what runs, what waits, why it waits, and when it starts."""
    from holdfast.queue.core_client import rows_of
    from holdfast.queue.core_messages import queue_json
    from holdfast.report.report_json import pretty

    rows = rows_of(home())
    if job is not None:
        rows = (_meant(rows, job),)
    if as_json:
        print_line(pretty(queue_json(rows)))
    elif job is not None:
        print_line(_explained(rows[0]))
    elif not rows:
        print_line("nothing waits or runs in this machine's queue\n  try: holdfast submit --devices 1 -- train.py")
    else:
        print_line(_listed(rows))


def _meant(rows: tuple[QueueRow, ...], job: str) -> QueueRow:
    """Return the job with this id, name or part of an id. Raises `BadUsage`."""
    for meant in (
        [row for row in rows if row.id == job],
        [row for row in rows if row.name == job],
        [row for row in rows if len(job) >= 4 and (row.id.startswith(job) or row.id.endswith(f"-{job}"))],
    ):
        if meant:
            return meant[-1]
    known = ", ".join(row.id for row in rows[:4])
    raise BadUsage(
        f"no job {job} waits or runs in this machine's queue" + (f": it has {known}" if known else ""),
        hint=f"holdfast show {job}",
    )


def _listed(rows: tuple[QueueRow, ...]) -> str:
    lines: list[tuple[str, ...]] = [("JOB", "NAME", "USER", "STATE", "PRIORITY", "DEVICES", "TIME", "WHY")]
    lines += [
        (row.id, row.name, row.user, row.state, row.priority, _devices(row), _limit(row), _why(row))
        for row in sorted(rows, key=lambda row: row.state != "running")
    ]
    return table(lines)


def _devices(row: QueueRow) -> str:
    return ",".join(row.devices) or str(row.needs.devices)


def _limit(row: QueueRow) -> str:
    from holdfast.record.local_time import clock

    if row.ends_at is not None:
        return f"ends by {clock(row.ends_at)}"
    return "no limit" if row.state == "running" else ""


def _why(row: QueueRow) -> str:
    from holdfast.record.local_time import clock

    if row.state == "running":
        return f"since {clock(row.started_at)}" if row.started_at is not None else ""
    return row.why


def _explained(row: QueueRow) -> str:
    from holdfast.record.local_time import clock

    needs = row.needs
    parts = [f"{needs.devices} devices", f"{needs.cpus} CPUs"]
    parts.append(f"{needs.memory / (1 << 30):.1f} GiB of memory" if needs.memory else "memory: not said")
    parts += [f"on {', '.join(needs.on)}"] if needs.on else []
    parts += ["alone on the machine"] if needs.exclusive else []
    lines = [
        f"job {row.id} ({row.name}) of {row.user} {row.state.upper()}",
        f"  priority   {row.priority}",
        f"  needs      {', '.join(parts)}",
        f"  submitted  {clock(row.submitted_at)}",
    ]
    if row.state == "running":
        lines.append(f"  started    {clock(row.started_at or row.submitted_at)}")
        lines.append(f"  devices    {', '.join(row.devices) or 'none'}")
        lines.append(f"  ends by    {clock(row.ends_at) if row.ends_at is not None else 'not known: it has no --time'}")
    else:
        lines.append(f"  waits      {row.why or 'for its turn'}")
        lines.append(f"  starts by  {clock(row.starts_at) if row.starts_at is not None else 'not known'}")
    lines.append(f"  to stop    holdfast stop {row.id} --reason TEXT")
    return "\n".join(lines)
