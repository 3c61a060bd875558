"""`holdfast exits`: lists, searches and lints the catalogue of exits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options.completion_values import classes
from holdfast.cli.output.printing import print_line, say

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue, ExitRow


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("words", nargs=-1, metavar="[CODE | PHRASE | WORDS... | lint FILE]", shell_complete=classes)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--exits",
    metavar="FILE",
    multiple=True,
    help="Add the catalogue rows of this file (holdfast's format, or OpenPAI's job-exit-spec).",
)
@click.option("--try", "log", metavar="LOG", help="Show every row that matches a line of LOG (`-`: stdin), in order.")
def command(words: tuple[str, ...], as_json: bool, exits: tuple[str, ...], log: str | None) -> None:
    """List the exits that holdfast knows, show one by code or phrase, search them, or check a file of your own rows."""
    from holdfast.errors import BadUsage

    if log is not None:
        if words:
            raise BadUsage(f"--try takes a log and nothing else, not `{words[0]}`", hint=f"holdfast exits --try {log}")
        _try(log, as_json, exits)
        return
    if words and words[0] == "lint":
        if len(words) != 2:
            raise BadUsage("`exits lint` takes one file of rows", hint="holdfast exits lint my-exits.yaml")
        _lint(words[1], as_json)
        return
    rows = _rows(exits)
    if words:
        rows = _found(rows, " ".join(words))
        if not rows:
            import difflib

            phrases = [row.phrase for row in _rows(exits)]
            near = difflib.get_close_matches(words[0], phrases, n=1, cutoff=0.5)
            raise BadUsage(
                f"no exit has the code, the phrase or the words `{' '.join(words)}`",
                hint=f"holdfast exits {near[0]}" if near else "holdfast exits",
            )
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty({"schema": "holdfast.exits/1", "exits": [_object(row) for row in rows]}))
        return
    if len(rows) == 1 or (words and words[0].lstrip("-").isdigit()):
        print_line("\n\n".join(map(_whole, rows)))
        return
    width = max(len(row.phrase) for row in rows)
    for row in rows if words else sorted(rows, key=lambda row: (row.code, row.phrase)):
        print_line(f"{row.code:>4}  {row.phrase:<{width}}  {row.blame:<9} {row.rerun:<9} {row.what}")


def _rows(files: tuple[str, ...]) -> list[ExitRow]:
    catalogue = _catalogue(files)
    if catalogue is None:
        from holdfast.catalogue.exit_rows import load

        return list(load().rows)
    return [*(spec.row for spec in catalogue.further), *catalogue.rows]


def _catalogue(files: tuple[str, ...]) -> Catalogue | None:
    """Return the catalogue with the rows of these files; None for the built-in one. Print what is wrong with rows."""
    if not files:
        return None
    from holdfast.node.explain_files import catalogue_with

    catalogue, said = catalogue_with(files)
    for sentence in said:
        say(sentence)
    return catalogue


def _found(rows: list[ExitRow], wanted: str) -> list[ExitRow]:
    """Find catalogue rows by exit code, or else by failure class, or else by words in the class, the meaning, the
    advice and the patterns."""
    if wanted.lstrip("-").isdigit():
        from holdfast.catalogue.exit_codes import special

        code = int(wanted)
        own = special(code)
        found = [row for row in rows if row.code == code]
        return found if own is None or any(row.phrase == own.phrase for row in found) else [own, *found]
    exact = [row for row in rows if row.phrase.lower() == wanted.lower()]
    if exact:
        return exact
    asked = wanted.lower().split()

    def places(row: ExitRow) -> list[str]:
        """Return the texts of a catalogue row in which a word is searched, the most important text first."""
        phrase = re.sub(r"([a-z])([A-Z])", r"\1 \2", row.phrase)
        means = f"{row.what} {row.blame} {row.rerun} {' '.join(wording.id for wording in row.wordings)}"
        advice = f"{row.reason} {row.solution}"
        patterns = " ".join(wording.pattern for wording in row.wordings)
        return [f"{row.phrase} {phrase}".lower(), means.lower(), advice.lower(), patterns.lower()]

    def rank(row: ExitRow) -> tuple[bool, int] | None:
        """Return the sort key of a catalogue row for the words of a search; None if the row lacks one of the words.

        Rows with the whole phrase come first. Among equal rows, those whose more important texts contain the words come
        first.
        """
        texts = places(row)
        found = [next((at for at, text in enumerate(texts) if word in text), None) for word in asked]
        ranks = [at for at in found if at is not None]
        if len(ranks) < len(asked):
            return None
        whole = all(re.search(rf"\b{re.escape(word)}\b", texts[at]) for word, at in zip(asked, ranks, strict=True))
        return not whole, max(ranks)

    ranked = [(place, row.code, row.phrase, row) for row in rows if (place := rank(row)) is not None]
    return [row for *_, row in sorted(ranked, key=lambda entry: entry[:3])]


def _object(row: ExitRow) -> dict[str, Any]:
    return {
        "code": row.code,
        "phrase": row.phrase,
        "blame": row.blame,
        "rerun": row.rerun,
        "what": row.what,
        "reason": row.reason,
        "solution": row.solution,
        "wordings": [
            {"id": wording.id, "pattern": wording.pattern, "strength": wording.strength, "where": wording.where}
            for wording in row.wordings
        ],
    }


def _whole(row: ExitRow) -> str:
    import textwrap

    lines = [f"{row.phrase} (exit code {row.code})", ""]
    for label, text in (
        ("what", row.what),
        ("blame", str(row.blame)),
        ("rerun", str(row.rerun)),
        ("solution", row.solution),
    ):
        if text:
            lines += textwrap.wrap(text, 98, initial_indent=f"  {label:<9} ", subsequent_indent=" " * 12)
    if row.wordings:
        lines.append(f"  known by  {len(row.wordings)} wordings")
        lines += [f"            {wording.id}" for wording in row.wordings]
    return "\n".join(lines)


#: Maximum number of matches that are shown as text; `--json` has all.
_MOST_TRIED = 500


def _try(log: str, as_json: bool, exits: tuple[str, ...]) -> None:
    from itertools import islice

    from holdfast.node.explain_files import try_rows
    from holdfast.report.terminal_text import harmless

    found = list(try_rows(log, _catalogue(exits)))
    if as_json:
        from holdfast.report.report_json import pretty

        matches = [
            {"line": m.number, "text": m.text, "phrase": m.phrase, "wording": m.wording, "strength": m.strength,
             "counts": not m.fails}
            for m in found
        ]  # fmt: skip
        print_line(pretty({"schema": "holdfast.matches/1", "log": log, "matches": matches}))
        return
    last = 0
    for match in islice(found, _MOST_TRIED):
        if match.number != last:
            print_line(f"{harmless(log)}:{match.number}: {harmless(match.text)[:200]}")
            last = match.number
        fails = f", but {match.fails}" if match.fails else ""
        print_line(f"    {match.phrase}  {match.wording} ({match.strength}){fails}")
    more = f"; the first {_MOST_TRIED} are shown" if len(found) > _MOST_TRIED else ""
    print_line(f"{len(found)} matches{more}. What decides: holdfast explain --why {harmless(log)}")


def _lint(name: str, as_json: bool) -> None:
    import sys

    from holdfast.node.explain_files import lint_file

    problems = lint_file(name)
    errors = sum(problem.grade == "error" for problem in problems)
    if as_json:
        from holdfast.report.report_json import pretty

        found = [{"grade": p.grade, "rule": p.rule, "where": p.where, "message": p.message} for p in problems]
        print_line(pretty({"schema": "holdfast.lint/1", "file": name, "problems": found}))
    else:
        for problem in problems:
            print_line(f"{name}: {problem.grade}: {problem.where}: {problem.message} [{problem.rule}]")
        print_line(
            f"{name}: {errors} errors, {len(problems) - errors} warnings" if problems else f"{name}: nothing wrong"
        )
    if errors:
        sys.exit(2)
