"""`holdfast run`: combines torchrun's command line with holdfast's options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from holdfast.cli.completion import SHELLS, print_completion
from holdfast.cli.options.completion_values import checks
from holdfast.cli.options.option_groups import RUN, GroupedCommand, shows_all
from holdfast.cli.options.run_option_table import ALSO, TORCHRUN, ignored, over_nodes, render, whole
from holdfast.cli.options.shared_options import setting_options
from holdfast.main.run_command import start
from holdfast.settings.run_options import IGNORED, RunOptions


class _Run(GroupedCommand):
    """Accepts options with hyphens or underscores, as torchrun does.

    All words after the script belong to the script.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, hyphened(args, self.params))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        if shows_all(ctx):
            with formatter.section("Accepted and ignored, for torchrun's sake"):
                formatter.write_text(", ".join(f"--{name.replace('_', '-')}" for name in IGNORED))


def hyphened(args: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """Turn `--nproc_per_node=2` into `--nproc-per-node=2` in all words before the script.

    The words after it stay unchanged.
    """
    takes_value: dict[str, bool] = {}
    for param in params:
        if isinstance(param, click.Option):
            for name in (*param.opts, *param.secondary_opts):
                takes_value[name] = not param.is_flag
    fixed: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            return [*fixed, word, *rest]
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("_", "-")
            if name not in takes_value and len(name) > 2:
                name = _unabbreviated(name, takes_value)
            fixed.append(name + equals + value)
        else:
            fixed.append(word)
        if not equals and takes_value.get(name, False) and rest:
            fixed.append(rest.pop(0))
    return fixed


def _unabbreviated(name: str, forms: Iterable[str]) -> str:
    """Return the full name if only one option matches. If none matches, click reports the unknown option.

    Raise UsageError if several options match.
    """
    found = whole(name, (*forms, "--help"))
    if len(found) > 1:
        raise click.UsageError(f"`{name}` may mean {', '.join(found)}: expected more of its letters")
    return found[0] if found else name


def _options() -> list[click.Parameter]:
    torchrun: list[click.Parameter] = [
        click.Option(
            [typed.param, *typed.forms],
            is_flag=typed.flag,
            default=typed.unset,
            metavar=typed.metavar or None,
            help=typed.help,
        )
        for typed in TORCHRUN
    ]
    ours: list[click.Parameter] = []
    for option in setting_options():
        if option.name == "checks":
            option._custom_shell_complete = checks  # click's constructor sets this attribute from `shell_complete=`
        if option.name in ALSO:
            option.opts.append(ALSO[option.name])
        ours.append(option)
    unused = [
        click.Option([typed.param, *typed.forms], is_flag=typed.flag, default=None, hidden=True) for typed in ignored()
    ]
    unused.append(
        click.Option(
            ["--print-completion"],
            type=click.Choice(SHELLS),
            expose_value=False,
            is_eager=True,
            hidden=True,
            callback=_print_completion,
        )
    )
    words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
    return [*torchrun, *ours, *unused, words]


def _print_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    """Print the script that `holdfast completion` prints, for torchrun's option `--print-completion`."""
    if shell is not None:
        print_completion(shell)
        context.exit()


def _main(**typed: Any) -> None:
    """Run SCRIPT as one gang of workers, on one machine or on many, with torchrun's options. Restart it after failures.

    At the end one report names the cause, the culprit and the solution. The exit status is the job's final code.
    """
    guard_fd: int | None = click.get_current_context().obj
    raise SystemExit(start(RunOptions(**typed), guard_fd, render=render, over_nodes=over_nodes))


command = _Run(
    "run",
    params=_options(),
    callback=_main,
    help=_main.__doc__,
    groups=RUN,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
