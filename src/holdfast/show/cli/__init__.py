"""The command line: one file a verb, imported only when that verb is typed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

VERBS: dict[str, str] = {
    "run": "Run a job as one gang: check, launch, explain, decide, remember.",
    "explain": "Say why a job died, from any log of any launcher.",
    "exits": "List, search and lint the catalogue of exits.",
    "check": "Run pre-checks here and now.",
    "devices": "Show every device's standing, and why.",
    "release": "Give a held device back to work.",
    "faults": "Report, list, lint and replay device faults.",
    "jobs": "List the jobs this machine remembers.",
    "show": "Show one job: attempts, causes, decisions.",
    "logs": "Print a job's logs.",
    "stop": "Ask a running job to stop, with a reason.",
    "config": "Show each setting and where it came from.",
}
"""Every verb and its one line; `holdfast.show.cli.<verb>` holds its `command`. Help needs no verb's imports."""


class _Verbs(click.Group):
    """Imports a verb's module when it is typed, so that `holdfast run` never pays for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"holdfast.show.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, VERBS, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"there is no verb `{name}`{meant}\n  try: holdfast --help", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Run distributed training and inference jobs so that they hold."""


def main(argv: Sequence[str] | None = None) -> None:
    """The console script. Our own exceptions become one message and their exit status; 1 is always a bug of ours."""
    try:
        status = cli.main(args=list(sys.argv[1:] if argv is None else argv), standalone_mode=False)
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.ClickException as error:
        error.show()
        status = 2
    except click.Abort:
        status = 130
    except HoldfastError as error:
        click.echo(f"holdfast: {error}", err=True)
        status = error.exit_status
    except BrokenPipeError:
        # `holdfast jobs | head`: the reader has seen enough. Python would complain again while flushing at exit.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status if isinstance(status, int) else 0)
