"""One vocabulary: terminal, pages, `show --html` and docs use the glossary's words for the parts of a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders import failed_job
from holdfast.report.brief_report import render_brief
from holdfast.report.failure_place import FailurePlace
from places import DOCS, SRC

#: Label in a report → the glossary's word for it.
LABELS = {
    "where": "where", "class": "class", "fix": "fix", "log": "log", "others": "other ranks", "evidence": "evidence",
    "attempts": "attempt", "checks": "check", "next": "", "reason": "cause", "because": "cause", "seen": "evidence",
}  # fmt: skip
WORDS = (
    "cause", "where", "log", "class", "fault", "fix", "other ranks", "decision", "attempt", "evidence", "held",
    "isolated", "released", "culprit",
)  # fmt: skip
#: A word that was used for a part of a report → the word of the glossary.
REPLACED = {
    "first cause": "culprit", "first to fail": "culprit", "why not the others": "other ranks", "to do": "fix",
    "failure class": "class", "needs a person": "needs attention", "blame": "fault", "stands": "state",
}  # fmt: skip


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    text = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")
    listed = [word.lower() for word in re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)]
    assert listed == sorted(set(listed))
    assert [word for word in WORDS if word not in listed] == []


def test_every_label_of_the_terminal_is_a_word_of_the_glossary() -> None:
    report = failed_job("20261127-0738-eruy")
    shown = render_brief(report, FailurePlace(), verbose=True)
    labels = {found[1] for line in shown.splitlines() if (found := re.match(r"  (\w+)\s{2,}\S", line))}
    assert labels and labels <= LABELS.keys()
    assert {word for word in LABELS.values() if word} - set(WORDS) == {"check"}


@pytest.mark.parametrize("path", sorted((SRC / "web" / "templates").glob("*.html")), ids=lambda path: path.name)
def test_a_title_on_a_page_is_a_word_of_the_glossary(path: Path) -> None:
    text = re.sub(r"{[{%].*?[%}]}", "", path.read_text(encoding="utf-8"))
    titles = re.findall(r"<(?:dt|th|h1|h2|summary|label)\b[^>]*>([^<]*)", text)
    assert [title for title in titles if title.strip(" :").lower() in REPLACED] == []


def test_the_page_that_is_passed_on_and_the_swimlane_have_no_other_words() -> None:
    for path in [*(SRC / "report").rglob("*.py"), *(SRC / "cli").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        for word in ("first cause", "first to fail", '"Failure class"', '"To do"'):
            assert word.lower() not in text.lower(), (path.name, word)
