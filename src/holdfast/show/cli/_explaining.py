"""What `holdfast explain` does, and its quick reader: without click, whose import takes as long as explaining."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

_VALUED = {"--exit-code": "exit_code", "--signal": "signal_name", "--exits": "exits"}


def read(args: Sequence[str]) -> dict[str, Any] | None:
    """What click makes of the same words; None for all that is not plain: click reads that, and says what is wrong."""
    given: dict[str, Any] = {"exit_code": None, "signal_name": None, "as_json": False}
    exits: list[str] = []
    files: list[str] = []
    rest = list(args)[::-1]
    while rest:
        word, equals, value = rest.pop().partition("=")
        if not word.startswith("-") or word == "-":
            files.append(word + equals + value)
        elif word == "--json" and not equals:
            given["as_json"] = True
        elif word in _VALUED and (equals or rest):
            text = value if equals else rest.pop()
            if word == "--exits":
                exits.append(text)
            elif word == "--signal":
                given["signal_name"] = text
            elif text.isascii() and text.removeprefix("-").isdigit():
                given["exit_code"] = int(text)
            else:
                return None
        else:
            return None
    return {**given, "files": tuple(files), "exits": tuple(exits)}


def explaining(
    files: Sequence[str], exit_code: int | None, signal_name: str | None, as_json: bool, exits: Sequence[str]
) -> None:
    """Prints the report. Raises `BadUsage` for words that cannot be meant."""
    from holdfast.errors import BadUsage
    from holdfast.loop.explain import explain_files, number_of, plain_of, signal_of
    from holdfast.show.cli._out import say, tell

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
        typed = exit_code
        if not 0 <= typed <= 255:  # as PBS, wait(2), Python or Windows write it
            told = signal_of(typed)
            number, exit_code = (told, None) if told is not None else (number, plain_of(typed))
            if told is None and exit_code is None:
                raise BadUsage(f"--exit-code {typed}: a status from 0 to 255 was expected", hint="--exit-code 1")
    if number is not None:
        exit_code = None
    catalogue = None
    if exits:
        from holdfast.loop.explain import catalogue_with

        catalogue, warnings = catalogue_with(exits)
        for warning in warnings:
            say(warning)
    report = explain_files(files, exit_code=exit_code, signal=number, catalogue=catalogue)
    if as_json:
        from holdfast.show.report_json import exit_text

        text = exit_text(report)
    else:
        import shutil

        from holdfast.show.report import render_exit

        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        text = render_exit(report, width=width, colour=sys.stdout.isatty())
    tell(text, nl=False)
