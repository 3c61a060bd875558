"""`holdfast explain`: explains why a job died, from any log of any launcher."""

from __future__ import annotations

import click

from holdfast.cli.options.completion_values import logs_or_jobs
from holdfast.cli.options.shared_options import utc_option


@click.command(
    epilog="Several files are the logs of several ranks of one job. The report names the rank that failed first."
)
@click.argument("files", nargs=-1, metavar="[FILE... | - | JOB]", shell_complete=logs_or_jobs)
@click.option("--exit-code", type=int, metavar="N", help="The exit status, if the log does not show it.")
@click.option("--signal", "signal_name", metavar="S", help="The signal that ended the job: a name or a number.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option(
    "--format",
    "form",
    metavar="F",
    type=click.Choice(["text", "json", "markdown", "github"]),
    help="text, json, markdown or github (an annotation, and the summary of the step).",
)
@click.option("--why", is_flag=True, help="Add the rule, wording and line that decided, and the best other causes.")
@utc_option
@click.option(
    "--exits",
    metavar="FILE",
    multiple=True,
    help="Add the catalogue rows of this file (holdfast's format, or OpenPAI's job-exit-spec).",
)
def command(
    files: tuple[str, ...],
    exit_code: int | None,
    signal_name: str | None,
    as_json: bool,
    form: str | None,
    why: bool,
    exits: tuple[str, ...],
) -> None:
    """Explain why a job died: failure class, reason, solution, and the lines that show it.

    FILE is a log, a directory, a glob in quotes, or an archive; any may be compressed. JOB, where no file is called so,
    is a job that holdfast ran, or another one: slurm:1234, pod/NAME, job/NAME (NAMESPACE/pod/NAME), ray:DIR. Without
    an argument, the last job of holdfast.
    """
    from holdfast.cli.options.explain_options import explaining

    explaining(files, exit_code, signal_name, as_json, exits, form=form, why=why)
