"""`holdfast agent`: `holdfast run --hosts` starts it on the other hosts, by ssh. No person types it."""

from __future__ import annotations

import click

from holdfast.loop.started import serve
from holdfast.show.cli._run_words import over_nodes, render


@click.command("agent", hidden=True)
def command() -> None:
    """Take part in a job as one of its nodes: the order comes on standard input."""
    raise SystemExit(serve(render, over_nodes))
