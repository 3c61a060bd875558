"""`holdfast completion SHELL`: prints the script with which a shell completes verbs, options, jobs, checks and
classes."""

from __future__ import annotations

import sys

import click

from holdfast.cli.options.shared_options import pipeable
from holdfast.cli.output.printing import print_line

WHERE = {
    "bash": 'eval "$(holdfast completion bash)"        # in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"         # in ~/.zshrc, after compinit',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


SHELLS = sorted(WHERE)


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(SHELLS))
@pipeable
def command(shell: str) -> None:
    """Print the script with which SHELL completes verbs, options, jobs, checks and failure classes."""
    print_completion(shell)


def print_completion(shell: str) -> None:
    """Print the script for this shell."""
    from click.shell_completion import get_completion_class

    from holdfast.cli.options.completion_values import VARIABLE
    from holdfast.cli.options.verb_group import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # click's `source()` would run bash to find its version, so it is not used.
    made = kind(cli, {}, "holdfast", VARIABLE)
    print_line(made.source_template % made.source_vars(), nl=False)
    if sys.stdout.isatty():
        print_line(f"# {WHERE[shell]}")
