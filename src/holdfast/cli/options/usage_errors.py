"""Turns click's errors into messages in holdfast's form: the mistake, the expected words, and a line to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import click

from holdfast.cli.options.option_groups import GroupedCommand

#: Values for options in the example command of a message. For any other option the metavar is used.
_EXAMPLES = {"--html": "report.html"}
_TOO_MANY = re.compile(r"Got unexpected extra arguments? \((?P<words>.*)\)", re.DOTALL)


def usage_message(error: click.ClickException, argv: Sequence[str], group: click.Group) -> str:
    """Return the message about bad usage.

    `error`: click's error. `argv`: the words as typed. `group`: the group of all verbs.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    # click's option parser raises errors without a context. For these, find the command in the typed words.
    command, path = (context.command, context.command_path) if context else _command(argv, group)
    typed = f"holdfast {shlex.join(argv)}"
    help_line = f"{path} --help{'-all' if isinstance(command, GroupedCommand) else ''}"
    match error:
        case click.MissingParameter(param=click.Parameter() as missing):
            needed = map(_example, [missing, *_others_required(command, missing, argv)])
            return f"`{path}`: expected {_shown(missing)}\n  try: {' '.join([typed, *needed])}"
        case click.BadOptionUsage(option_name=name) if "requires an argument" in error.message:
            option = _option(command, name)
            value = _EXAMPLES.get(name) or (option and _metavar(option)) or "VALUE"
            return f"{name}: expected {(option and _metavar(option)) or 'a value'} behind it\n  try: {typed} {value}"
        case click.BadOptionUsage(option_name=name) if "does not take a value" in error.message:
            words = [name if word.startswith(f"{name}=") else word for word in argv]
            return f"{name} takes no value\n  try: holdfast {shlex.join(words)}"
        case click.BadParameter(param=click.Parameter() as wrong):
            return f"{_form(wrong)}: {_wrong_value(error, wrong)}\n  try: {help_line}"
    said = error.format_message()
    if found := _TOO_MANY.fullmatch(said.rstrip(".")):
        return _too_many(found["words"], command, path, argv)
    return said if "try: " in said else f"{said}\n  try: {help_line}"


def _too_many(extra: str, command: click.Command, path: str, argv: Sequence[str]) -> str:
    takes = [_metavar(each) for each in command.params if isinstance(each, click.Argument)]
    kept = list(argv)
    for word in reversed(extra.split(" ")):
        if word in kept:
            at = len(kept) - 1 - kept[::-1].index(word)
            del kept[at]
    expected = f"one {' and one '.join(takes)}" if takes else "no argument"
    return f"`{path}` takes {expected}: `{extra}` is too much\n  try: holdfast {shlex.join(kept)}"


def _command(argv: Sequence[str], group: click.Group) -> tuple[click.Command, str]:
    """Return the command with which the typed words begin, and its path, such as `holdfast faults report`."""
    command: click.Command = group
    path, context = "holdfast", click.Context(group)
    for word in argv:
        below = command.get_command(context, word) if isinstance(command, click.Group) else None
        if below is None:
            break
        command, path = below, f"{path} {word}"
    return command, path


def _option(command: click.Command, form: str) -> click.Parameter | None:
    return next((each for each in command.params if form in (*each.opts, *each.secondary_opts)), None)


def _others_required(command: click.Command, missing: click.Parameter, argv: Sequence[str]) -> list[click.Parameter]:
    return [
        each
        for each in command.params
        if isinstance(each, click.Option) and each.required and each is not missing and not {*each.opts} & {*argv}
    ]


def _metavar(parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice):
        *most, last = map(str, parameter.type.choices)
        return f"{', '.join(most)} or {last}" if most else last
    if parameter.metavar:
        return parameter.metavar
    return (parameter.name or "").upper() if isinstance(parameter, click.Argument) else parameter.type.name.upper()


def _form(parameter: click.Parameter) -> str:
    return (parameter.name or "").upper() if isinstance(parameter, click.Argument) else parameter.opts[0]


def _shown(parameter: click.Parameter) -> str:
    return _metavar(parameter) if isinstance(parameter, click.Argument) else f"{_form(parameter)} {_metavar(parameter)}"


def _wrong_value(error: click.BadParameter, parameter: click.Parameter) -> str:
    said = error.message.rstrip(".")
    if isinstance(parameter.type, click.INT.__class__) and "not a valid integer" in said:
        return f"expected a whole number, got {said.partition(' is not ')[0]}"
    return said


def _example(parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice):
        return str(parameter.type.choices[0])
    return _shown(parameter).partition(" | ")[0]
