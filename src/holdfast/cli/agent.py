"""`holdfast agent`: `holdfast run --hosts` starts it on the other hosts by ssh. Users do not type this verb."""

from __future__ import annotations

import click

from holdfast.cli.options.run_option_table import over_nodes, render
from holdfast.main.agent_main import serve


@click.command("agent", hidden=True)
def command() -> None:
    """Take part in a job as one of its nodes. The settings come on standard input."""
    raise SystemExit(serve(render, over_nodes))
