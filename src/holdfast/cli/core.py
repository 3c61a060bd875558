"""`holdfast core`: shows, ends or runs the core, the process of this machine's queue."""

from __future__ import annotations

import click

from holdfast.cli.options.shared_options import home, utc_option
from holdfast.cli.output.printing import print_line


@click.group()
def command() -> None:
    """Look at the core, the process of this machine's queue, or end it."""


@command.command()
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(as_json: bool) -> None:
    """Show whether a core runs, since when, and how many jobs run and wait."""
    from holdfast.queue.core_client import ask
    from holdfast.queue.core_messages import GetStatus
    from holdfast.queue.core_place import CorePlace
    from holdfast.queue.core_records import counts
    from holdfast.record.local_time import clock
    from holdfast.report.report_json import pretty

    where = home()
    answer = ask(where, GetStatus(), start=False)
    pid, since = (answer.pid, answer.since) if answer is not None else (None, None)
    running, waiting = (answer.running, answer.waiting) if answer is not None else counts(CorePlace.here(where).records)
    if as_json:
        print_line(pretty({"pid": pid, "since": since, "running": running, "waiting": waiting}))
        return
    jobs = f"{running} running, {waiting} waiting"
    if pid is None or since is None:
        print_line(f"no core runs here: {jobs}; the next `holdfast submit` starts one")
    else:
        print_line(f"the core (pid {pid}) runs since {clock(since)}: {jobs}")


@command.command()
def stop() -> None:
    """End the core and nothing else: jobs run on, and waiting jobs keep their places."""
    from holdfast.queue.core_client import ask
    from holdfast.queue.core_messages import ShutDown

    answer = ask(home(), ShutDown(), start=False)
    print_line(answer.message if answer is not None else "no core runs here, so there is nothing to end")


@command.command(hidden=True)
@click.option("--lock-fd", type=int, hidden=True)
@click.option("--socket-fd", type=int, hidden=True)
@click.option("--ready-fd", type=int, hidden=True)
def serve(lock_fd: int | None, socket_fd: int | None, ready_fd: int | None) -> None:
    """Run the core in this process. Commands that need a core start it."""
    import socket
    import sys

    from holdfast.queue.core_place import CorePlace
    from holdfast.queue.core_process import serve as run_core

    listener = socket.socket(fileno=socket_fd) if socket_fd is not None else None
    sys.exit(run_core(CorePlace.here(home()), lock_fd, listener, ready_fd))
