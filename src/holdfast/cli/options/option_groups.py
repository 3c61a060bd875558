"""Prints help pages in two lengths: `--help` has the options that most people type, `--help-all` has all, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from holdfast.cli.output.printing import print_line

#: The key in click's context under which the parser notes that `--help-all` was typed.
_ALL = "holdfast.help_all"


#: Width of the help's first column, in characters. An option with a longer name has a line of its own.
_WIDEST = 30


class OptionGroup(NamedTuple):
    """Options below one title of the help, by their long names without the hyphens in front."""

    title: str
    #: The options that `--help` shows.
    often: Sequence[str] = ()
    #: The options that only `--help-all` and the manual show.
    rest: Sequence[str] = ()


#: The options of `holdfast run`, in groups. A test ensures that the groups contain all of its options.
# fmt: off
RUN: tuple[OptionGroup, ...] = (
    OptionGroup(
        "Workers",
        ("nproc-per-node", "python", "job", "name"),
        ("module", "no-python", "run-path", "command-from", "accelerate-config", "image-runtime", "role",
         "virtual-local-rank", "stdin", "bind", "pai"),
    ),
    OptionGroup(
        "Nodes",
        ("nnodes", "rdzv-endpoint", "hosts"),
        ("node-rank", "rdzv-id", "rdzv-backend", "rdzv-conf", "standalone", "master-addr", "master-port", "local-addr",
         "hostfile", "ssh", "spares", "join-timeout", "last-call", "replace-wait", "grow", "owner-wait", "job-key",
         "port-range"),
    ),
    OptionGroup(
        "Failures and time",
        ("max-restarts", "hang-timeout", "time-limit", "no-checks", "warm"),
        ("same-failure", "hang-warning", "grace", "leftover-wait", "fetch-timeout", "prepare-timeout", "preload",
         "warm-timeout", "standby", "disk-limit", "requeue-at-limit", "outer", "exits"),
    ),
    OptionGroup(
        "Output and messages",
        ("log-dir", "report", "notify"),
        ("json", "verbose", "utc", "events", "tee", "redirects", "fold", "local-ranks-filter",
         "log-line-prefix-template",
         "on-event", "on-end", "notice-timeout", "summary", "traces", "metrics-file", "exit-status", "termination-log",
         "container-status", "job-comment"),
    ),
    OptionGroup(
        "Logs and jobs that are kept",
        (),
        ("log-size", "log-kept", "log-attempts", "keep-jobs", "keep-days", "keep-size"),
    ),
    OptionGroup(
        "Checks and devices",
        (),
        ("checks", "check-timeout", "plugin", "kernel-log", "fault-codes", "fault-rules", "fault-socket", "fault-file",
         "ascend-events", "reset-command", "reset-group"),
    ),
)
# fmt: on


class GroupedCommand(click.Command):
    """A command whose `--help` shows only the options that are used often.

    `groups`: all options of the command, in the order of the help.
    """

    def __init__(self, *args: Any, groups: Sequence[OptionGroup], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        found = super().get_params(ctx)
        shown = sum(isinstance(param, click.Option) and not param.hidden for param in self.params)
        return [
            *found,
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_all,
                help=f"Show all {shown} options (also: holdfast man).",
            ),
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = sections(self, ctx, whole=shows_all(ctx))
        lengths = [len(name) for _, records in found for name, _ in records]
        width = max(length for length in lengths if length <= _WIDEST)
        for title, records in found:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in records], col_max=width)


def shows_all(ctx: click.Context) -> bool:
    """Return whether `--help-all` was typed."""
    return _ALL in ctx.meta


def sections(command: click.Command, ctx: click.Context, *, whole: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the options of a command as pairs of name and text, below the titles of their groups.

    `whole`: also return the options that are seldom used. An option of no group is below the last title.
    """
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option) and not param.hidden]
    named = {form.lstrip("-"): option for option in options for form in option.opts}
    groups = command.groups if isinstance(command, GroupedCommand) else ()
    grouped = {name for group in groups for name in (*group.often, *group.rest)}
    rest = [
        option.opts[0].lstrip("-") for option in options if grouped.isdisjoint(form.lstrip("-") for form in option.opts)
    ]
    found = []
    for group in (*groups, OptionGroup("Help" if groups else "Options", rest)):
        names = (*group.often, *(group.rest if whole else ()))
        records = [
            record for name in names if name in named and (record := named[name].get_help_record(ctx)) is not None
        ]
        if records:
            found.append((group.title, records))
    return found


def _print_all(context: click.Context, _: click.Parameter, typed: bool) -> None:
    if typed:
        context.meta[_ALL] = True
        print_line(context.get_help())
        context.exit()
