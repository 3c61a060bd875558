"""`holdfast explain`: explains why a job died, from any log of any launcher."""

from __future__ import annotations

import click

from holdfast.cli.options.completion_values import logs_or_jobs
from holdfast.cli.options.shared_options import utc_option


@click.command(epilog="Several files are several ranks of one job: the culprit is sought across them.")
@click.argument("files", nargs=-1, metavar="[FILE... | - | JOB]", shell_complete=logs_or_jobs)
@click.option("--exit-code", type=int, metavar="N", help="The exit status, where the log does not tell it.")
@click.option("--signal", "signal_name", metavar="S", help="The signal that ended it: a name or a number.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@utc_option
@click.option("--exits", metavar="FILE", multiple=True, help="Further rows: our format, or OpenPAI's job-exit-spec.")
def command(
    files: tuple[str, ...], exit_code: int | None, signal_name: str | None, as_json: bool, exits: tuple[str, ...]
) -> None:
    """Say why a job died: one phrase, one reason, one solution, with the lines that show it.

    JOB, where no file is called so, is a job that holdfast ran: its report. Without anything, the last one.
    """
    from holdfast.cli.options.explain_options import explaining

    explaining(files, exit_code, signal_name, as_json, exits)
