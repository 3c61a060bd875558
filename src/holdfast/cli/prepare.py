"""`holdfast prepare`: prepares a task's container, in a process that ends before the container starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from holdfast.cli.output.printing import print_line, redraw_line, say
from holdfast.errors import HoldfastError
from holdfast.main.prepare_container import EXCHANGE, prepare
from holdfast.model.phrases import Phrase
from holdfast.report.terminal_text import columns

#: Limit on each text in the result file, in characters, because the file may have at most 4096 bytes.
MOST_WORDS = 1000
PATH = click.Path(path_type=Path)


@click.command()
@click.option(
    "--into",
    type=PATH,
    default=EXCHANGE,
    show_default=True,
    metavar="DIR",
    help="The directory that the container will mount.",
)
@click.option("--job", type=PATH, metavar="FILE", help="A job file, which is checked and copied to DIR/job.yaml.")
@click.option(
    "--tree",
    type=PATH,
    metavar="DIR",
    help="The runtime to copy; default: HOLDFAST_TREE, this holdfast's own, the image's, or one that is built once.",
)
@click.option(
    "--result",
    type=PATH,
    metavar="FILE",
    help="Write a failure to this file as JSON, at most 4096 bytes: /dev/termination-log in a container of Kubernetes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(into: Path, job: Path | None, tree: Path | None, result: Path | None, as_json: bool) -> None:
    """Write the runtime into DIR, with the start command DIR/run.

    A container that mounts DIR needs neither Python nor holdfast, and its command is DIR/run. A repeated call changes
    nothing, and another version replaces the one before. The job's `prerequisites` are fetched into DIR, each
    completely or not at all. Exit status 0: DIR is complete. Otherwise the last line on stdout is JSON with the reason.
    """
    try:
        laid = prepare(into, job, tree, _said, _draw if sys.stderr.isatty() else None, columns(os.environ))
    except HoldfastError as error:
        _leave(error, result)
        raise
    if as_json:
        from holdfast.report.report_json import pretty

        size = {"version": laid.tree.version, "size_bytes": laid.tree.size_bytes}
        whole = {"run": str(laid.run), **size, "fresh": laid.fresh, "before": laid.before or None}
        print_line(pretty({"schema": "holdfast.prepared/1", **whole}))
        return
    version = f"holdfast {laid.tree.version}, {laid.tree.size_bytes / 1e6:.0f} MB"
    if not laid.fresh:
        print_line(f"{laid.run} is there already ({version})")
    elif laid.before:
        print_line(f"{laid.run} is {version}, in place of {laid.before}")
    else:
        print_line(f"{laid.run} is {version}")


def _said(words: str) -> None:
    say(words)


def _draw(line: str) -> None:
    redraw_line(line, columns(os.environ))


def _leave(error: HoldfastError, result: Path | None) -> None:
    """Write the error as JSON to the result file and as the last line of stdout, for the program that starts the
    container."""
    from holdfast.model.codec import encode
    from holdfast.model.fetch_messages import NotPrepared
    from holdfast.safe_files import write_given  # imported here, because only a failure needs it

    trouble = getattr(error, "trouble", None)
    left = NotPrepared(
        phrase=getattr(error, "phrase", "") or Phrase.CONFIG_INVALID,
        words=(trouble.words if trouble is not None else error.message)[:MOST_WORDS],
        solution=(getattr(error, "solution", "") or error.hint)[:MOST_WORDS],
        code=error.exit_status,
        name=trouble.name if trouble is not None else "",
    )
    data = encode(left)
    print_line(data.decode())
    if result is not None:
        try:
            write_given(result, data + b"\n")
        except OSError as problem:
            say(f"{result}: {problem.strerror or problem}")
