"""The documentation keeps up: every name a user can meet has its paragraph, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from holdfast.catalogue.exit_rows import read_rows
from holdfast.check_registry import CheckKind
from holdfast.cli.options.verb_group import VERBS, cli
from holdfast.model.actions import Action
from holdfast.model.events import Event
from holdfast.report.failure_pages import pages
from holdfast.settings.settings_table import SETTINGS
from places import DOCS, SRC
from tables import rows

ALL_PAGES = sorted(DOCS.rglob("*.md"))


@cache
def _page_text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@cache
def _section(page_text: str, title: str) -> str:
    """From its heading to the next one of the same level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page_text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _has_paragraph(text: str, name: str) -> bool:
    """`**Name**: words` at the start of a paragraph."""
    return re.search(rf"^\*\*{re.escape(name)}\*\*: \w", text, re.MULTILINE) is not None


@rows("message", typing.get_args(Event))
def test_every_event_has_its_paragraph(message: type) -> None:
    assert _has_paragraph(_section(_page_text("reference/records.md"), "Events"), message.__name__)


@rows("message", typing.get_args(Action))
def test_every_action_has_its_paragraph(message: type) -> None:
    assert _has_paragraph(_section(_page_text("reference/records.md"), "Actions"), message.__name__)


def test_no_message_is_described_that_is_gone() -> None:
    for title, union in (("Events", Event), ("Actions", Action)):
        described = set(
            re.findall(r"^\*\*(\w+)\*\*:", _section(_page_text("reference/records.md"), title), re.MULTILINE)
        )
        assert described == {message.__name__ for message in typing.get_args(union)}


def test_the_pages_of_failure_classes_are_the_catalogue() -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "reference" / "failures").iterdir()}
    assert there == pages(read_rows()), "make them anew: python -m holdfast.report.failure_pages"


@rows("row", read_rows(), lambda row: row.phrase)
def test_every_failure_class_has_a_page_that_says_what_it_is_and_a_row_in_the_list(row: typing.Any) -> None:
    page = " ".join(_page_text(f"reference/failures/{row.phrase}.md").split())
    assert " ".join(row.what.rstrip(".")[1:].split()) in page
    assert f"| exit code | {row.code} |" in page
    assert f"| [{row.phrase}]({row.phrase}.md) |" in _page_text("reference/failures/index.md")


@rows("kind", CheckKind)
def test_every_kind_of_plugin_is_described(kind: CheckKind) -> None:
    assert f"**{kind.value}**" in " ".join(_section(_page_text("reference/cli.md"), "holdfast check").split())


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from _commands(inner)


@rows("verb", VERBS)
def test_every_verb_has_a_section_and_each_of_its_options_a_heading(verb: str) -> None:
    section = _section(_page_text("reference/cli.md"), f"holdfast {verb}")
    assert f"`holdfast {verb}" in section
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    described = set(re.findall(r"`(-[-\w]+)", " ".join(re.findall(r"^### (.+)$", section, re.MULTILINE))))
    missing = [
        name
        for each in _commands(command)
        for param in each.params
        if isinstance(param, click.Option) and not param.hidden
        for name in (*param.opts, *param.secondary_opts)
        if name not in described
    ]
    assert missing == []
    inner = [each.name for each in _commands(command) if each is not command]
    assert [name for name in inner if name and name not in section] == []


def test_no_verb_is_described_that_is_gone() -> None:
    assert set(re.findall(r"^## holdfast (\w+)$", _page_text("reference/cli.md"), re.MULTILINE)) == set(VERBS)


@rows("setting", SETTINGS, lambda setting: setting.name)
def test_every_setting_has_its_heading(setting: typing.Any) -> None:
    assert re.search(
        rf"^### (?:`[^`]+`, )*`--{setting.name}[ `]",
        _section(_page_text("reference/cli.md"), "holdfast run"),
        re.MULTILINE,
    )


@cache
def _anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@rows("place", ALL_PAGES, lambda place: place.relative_to(DOCS))
def test_every_link_leads_somewhere(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        found = (place.parent / file).resolve() if file else place
        if not found.exists() or (anchor and anchor not in _anchors(found)):
            broken.append(target)
    assert broken == []


def test_every_folder_has_its_sentence_and_every_sentence_its_folder() -> None:
    source = SRC
    folders = {path.parent.relative_to(source) for path in source.rglob("__init__.py")} - {Path()}
    # What is inside the warm workers, and beside them, is one idea with the folder above it.
    named = {str(path) for path in folders if len(path.parts) <= 2 and path.name != "alongside"}
    told = set(re.findall(r"^\| `([\w/]+)/` \|", _page_text("internals/architecture.md"), re.MULTILINE))
    assert told == named


def test_every_word_of_the_glossary_is_defined_once_in_the_order_of_the_alphabet() -> None:
    words = re.findall(r"^\*\*([\w -]+)\*\*: ", _page_text("reference/glossary.md"), re.MULTILINE)
    assert words == sorted(set(words), key=str.lower)
    needed = ("gang", "hold", "attempt", "drain", "owner", "agent", "worker", "guard", "spare", "lease", "culprit")
    assert not {*needed} - {*words}


def test_every_page_is_in_the_sites_navigation() -> None:
    listed = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    by_the_hook = ("reference/failures/", "internals/decisions/")
    names = [str(page.relative_to(DOCS)) for page in ALL_PAGES]
    assert [name for name in names if not name.startswith(by_the_hook) and name not in listed] == []


@pytest.mark.extras
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=DOCS.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "site" / "reference" / "failures" / "HungWorker" / "index.html").exists()
