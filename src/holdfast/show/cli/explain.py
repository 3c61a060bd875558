"""`holdfast explain`: why a job died, from any log of any launcher."""

from __future__ import annotations

import click


@click.command(epilog="Several files are several ranks of one job: the first cause is sought across them.")
@click.argument("files", nargs=-1, metavar="[FILE... | -]")
@click.option("--exit-code", type=int, metavar="N", help="The exit status, where the log does not tell it.")
@click.option("--signal", "signal_name", metavar="S", help="The signal that ended it: a name or a number.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--exits", metavar="FILE", multiple=True, help="Further rows: our format, or OpenPAI's job-exit-spec.")
def command(
    files: tuple[str, ...], exit_code: int | None, signal_name: str | None, as_json: bool, exits: tuple[str, ...]
) -> None:
    """Say why a job died: one phrase, one reason, one solution, with the lines that show it."""
    import sys

    from holdfast.errors import BadUsage
    from holdfast.loop.explain import explain_files, number_of, signal_of

    if not files and sys.stdin.isatty():
        raise BadUsage("no log was given: name files, or `-` for standard input", hint="holdfast explain job.log")
    number: int | None = None
    if signal_name is not None:
        number = number_of(signal_name)
        if number is None or not 0 < number < 65:
            raise BadUsage(
                f"--signal {signal_name}: no such signal; a name or a number was expected", hint="--signal KILL"
            )
    if exit_code is not None:
        if not -64 <= exit_code <= 255:
            raise BadUsage(f"--exit-code {exit_code}: a status from 0 to 255 was expected", hint="--exit-code 1")
        if exit_code < 0:
            number, exit_code = signal_of(exit_code), None
    if number is not None:
        exit_code = None
    catalogue = None
    if exits:
        from holdfast.loop.explain import catalogue_with

        catalogue, warnings = catalogue_with(exits)
        for warning in warnings:
            click.echo(f"holdfast: {warning}", err=True)
    report = explain_files(files, exit_code=exit_code, signal=number, catalogue=catalogue)
    if as_json:
        from holdfast.show.report_json import exit_text

        click.echo(exit_text(report), nl=False)
        return
    import shutil

    from holdfast.show.report import render_exit

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    click.echo(render_exit(report, width=width, colour=sys.stdout.isatty()), nl=False)
