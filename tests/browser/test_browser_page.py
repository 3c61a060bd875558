"""The page for a ticket in a real browser, opened from a file: without JavaScript and without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from eyes import Eyes

from conftest import Holdfast

FAILS = """
    import os, signal
    if os.environ["RANK"] == "1":
        raise KeyError("<script>document.title='hacked'</script>")
    signal.pause()
"""


@pytest.fixture
def page_file(holdfast: Holdfast) -> Path:
    holdfast.run("--nproc-per-node", "4", "--max-restarts", "1", holdfast.script(FAILS))
    assert holdfast("show", "--html", "job.html").status == 0
    return holdfast.dir / "job.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_fault_with_everything_unfolded(browser: Eyes, page_file: Path, dark: bool) -> None:
    page = browser.open(page_file, dark=dark)
    for summary in page.locator("summary").all():
        summary.click()
    browser.picture(page, f"page-{'dark' if dark else 'light'}")
    assert browser.faults(page) == []
    assert browser.asked_elsewhere == []


def test_a_script_in_an_exception_is_a_text_also_where_javascript_runs(browser: Eyes, page_file: Path) -> None:
    page = browser.open(page_file, script=True)
    assert page.title() == "job FAILED"
    assert "<script>document.title" in page.locator("header").inner_text()
    assert page.locator("script").count() == 0


def test_a_telephone_and_a_sheet_of_paper_show_all_of_it(browser: Eyes, page_file: Path) -> None:
    page = browser.open(page_file, width=390)
    browser.picture(page, "page-narrow")
    whole = page.locator("main").bounding_box()
    assert whole["width"] <= 390
    page.emulate_media(media="print")
    browser.picture(page, "page-print")
    assert page.locator("header h1").is_visible()
    shown = page.locator("pre").first.bounding_box()
    assert shown["width"] <= 390
