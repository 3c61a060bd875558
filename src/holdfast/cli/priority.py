"""`holdfast priority JOB PRIORITY`: changes the priority of a job in this machine's queue."""

from __future__ import annotations

import click

from holdfast.cli.options.completion_values import jobs
from holdfast.cli.options.shared_options import home, survey
from holdfast.cli.output.printing import print_line
from holdfast.errors import BadUsage


@click.command()
@click.argument("job", shell_complete=jobs)
@click.argument("priority", metavar="PRIORITY")
def command(job: str, priority: str) -> None:
    """Change the priority of a job that waits: low, normal, high or urgent."""
    from holdfast.queue.core_client import ask_if_any
    from holdfast.queue.core_messages import SetPriority
    from holdfast.record.job_lookup import find

    view = find(survey(), job)
    answer = ask_if_any(home(), SetPriority(id=view.id, priority=priority))
    if answer is None or answer.unknown:
        raise BadUsage(f"job {view.id} ({view.name}) is not in this machine's queue", hint="holdfast queue")
    if not answer.ok:
        raise BadUsage(answer.message, hint=answer.hint)
    print_line(answer.message)
