"""The swimlane in a real browser: readable without JavaScript, in light and dark, by people who do not see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from eyes import Eyes

from holdfast.model.human_format import utc
from holdfast.report.swimlane import STYLE, figure, swimlane_of
from swimlane_story import story


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    body = figure(swimlane_of(*story(nodes=40, each=8, attempts=3, culprit=17), now=None), utc)
    dark = "@media (prefers-color-scheme:dark){body{background:#0d1117;color:#fff}}"
    head = f"<title>job</title><style>{STYLE}{dark}</style>"
    file = tmp_path / "page.html"
    file.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}</head>'
        f"<body><main><h1>job</h1>{body}</main></body></html>"
    )
    return file


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_fault_in_the_swimlane(browser: Eyes, page_file: Path, dark: bool) -> None:
    page = browser.open(page_file, dark=dark)
    page.get_by_text("The same as a table").click()
    browser.picture(page, f"swimlane-{'dark' if dark else 'light'}")
    assert browser.faults(page) == []
    assert browser.asked_elsewhere == []


def test_every_mark_lies_within_the_picture(browser: Eyes, page_file: Path) -> None:
    page = browser.open(page_file)
    whole = page.locator(".sw-picture").bounding_box()
    boxes = [mark.bounding_box() for mark in page.locator(".sw-picture .sw-m").all()]
    assert len(boxes) > 8
    assert all(whole["x"] <= box["x"] and box["x"] + box["width"] <= whole["x"] + whole["width"] for box in boxes)


def test_a_narrow_window_scrolls_the_picture_and_not_the_page(browser: Eyes, page_file: Path) -> None:
    page = browser.open(page_file, width=400)
    picture, window = page.locator(".sw-picture").bounding_box(), page.locator(".sw-scroll").first.bounding_box()
    assert picture["width"] > 700 and window["width"] <= 400


def test_the_table_says_who_died_without_the_picture(browser: Eyes, page_file: Path) -> None:
    page = browser.open(page_file)
    page.get_by_text("The same as a table").click()
    row = page.get_by_role("row").filter(has_text="rank 17 (the culprit)")
    assert "own death at" in row.inner_text()
