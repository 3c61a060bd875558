"""`holdfast man [VERB]`: prints manual pages, which are made from the same table as `--help`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from holdfast.cli.options.option_groups import GroupedCommand, sections
from holdfast.cli.options.shared_options import pipeable
from holdfast.cli.output.printing import print_line
from holdfast.errors import HoldfastError
from holdfast.version import __version__


@click.command()
@click.argument("verb", required=False)
@click.option("--into", metavar="DIR", help="Write all pages into this directory: ~/.local/share/man/man1.")
@pipeable
def command(verb: str | None, into: str | None) -> None:
    """Print a page of the manual: `holdfast man run | man -l -`. Without VERB, the page of holdfast itself."""
    from holdfast.cli.options.verb_group import VERBS

    if into is None:
        print_line(page(verb or ""), nl=False)
        return
    where = Path(into).expanduser()
    try:
        where.mkdir(parents=True, exist_ok=True)
        for each in ("", *VERBS):
            (where / f"{_title(each)}.1").write_text(page(each), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"--into {into}: not written: {error.strerror}", hint=f"ls -ld {into}") from error
    print_line(f"{len(VERBS) + 1} pages in {where}; read one with: man -M {where.parent} holdfast-run")


def page(verb: str) -> str:
    """Return one page as roff. Raise click.UsageError for an unknown verb."""
    from holdfast.cli.options.verb_group import ALIASES, VERBS, cli

    root = click.Context(cli, info_name="holdfast")
    if not verb:
        help_text, words = cli.help or "", "VERB [OPTIONS] …"
        rows = [(name, text) for name, text in VERBS.items()]
        head = ("holdfast", "run distributed jobs so that they hold")
        options: list[tuple[str, str]] = [(f"holdfast {name}", text) for name, text in rows]
        also = [f"holdfast-{name}(1)" for name in VERBS]
        return _roff(head, f"holdfast {words}", help_text, "VERBS", options, also)
    _, found, _ = cli.resolve_command(root, [verb])
    assert found is not None
    name = ALIASES.get(verb, verb)
    context = click.Context(found, info_name=f"holdfast {name}", parent=None)
    usage = " ".join(found.collect_usage_pieces(context))
    head = (_title(name), VERBS.get(name, "").rstrip("."))
    parts = [(f"{name} {sub}", each) for sub, each in _subs(found)] or [(name, found)]
    options = []
    for title, each in parts:
        own = click.Context(each, info_name=f"holdfast {title}")
        if len(parts) > 1:
            options.append((f"holdfast {title}", (each.help or "").split("\n\n")[0]))
        for group, records in sections(each, own, whole=True):
            options += [(group, ""), *records] if isinstance(each, GroupedCommand) else records
    return _roff(head, f"holdfast {name} {usage}", found.help or "", "OPTIONS", options, ["holdfast(1)"])


def _subs(found: click.Command) -> list[tuple[str, Any]]:
    return sorted(found.commands.items()) if isinstance(found, click.Group) else []


def _title(verb: str) -> str:
    return f"holdfast-{verb}" if verb else "holdfast"


def _roff(
    head: tuple[str, str], usage: str, text: str, title: str, options: list[tuple[str, str]], also: list[str]
) -> str:
    paragraphs = re.split(r"\n\s*\n", text.strip())
    lines = [
        f'.TH "{head[0].upper()}" "1" "" "holdfast {__version__}" "holdfast"',
        ".SH NAME",
        f"{_plain(head[0])} \\- {_plain(head[1])}",
        ".SH SYNOPSIS",
        f"\\fB{_plain(usage)}\\fR",
        ".SH DESCRIPTION",
    ]
    for paragraph in paragraphs:
        lines += [".PP", _plain(" ".join(paragraph.split()))]
    if options:
        lines.append(f".SH {title}")
    for name, about in options:
        if not about and "-" not in name:  # this entry is the title of a group of options
            lines.append(f".SS {_plain(name)}")
            continue
        lines += [".TP", f"\\fB{_plain(name)}\\fR", _plain(" ".join((about or "").split())) or "\\&"]
    lines += [".SH EXIT STATUS", _plain("0: it answered; 2: bad usage; 1: trouble of holdfast or of the machine. ")]
    if head[0] == "holdfast-run":
        lines[-1] = _plain("The job's final code (holdfast exits): 0 where it succeeded, 2 for bad usage.")
    lines += [".SH SEE ALSO", _plain(", ".join(also))]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Escape text, so that roff prints it unchanged."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe
