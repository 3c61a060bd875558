"""The pages Failures and Goodput in a real browser: each choice used, light and dark, hostile words of a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from eyes import Eyes
from web_site import Served, run, script

from holdfast_testing.history_generator import make_history

HOSTILE = """
raise ValueError("<script>document.title='taken'</script><img src=x onerror=document.title='taken'>\\u202edoog")
"""


@pytest.fixture(scope="module")
def long(web_of: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server on 300 jobs of half a year."""
    home = tmp_path_factory.mktemp("figures")
    make_history(home, jobs=300, ranks=32, now=1_795_000_000.0)
    return web_of(home)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("path", ["/failures?days=0", "/goodput?days=0", "/goodput?days=0&by=name"])
def test_axe_finds_no_fault_in_the_pages_of_figures(browser: Eyes, long: Served, path: str, dark: bool) -> None:
    page = browser.open(long.at(path), dark=dark, script=True)  # a copy without it would have no style sheet
    page.wait_for_selector("table")
    browser.picture(page, f"{path[1:].replace('?', '-').replace('&', '-')}-{'dark' if dark else 'light'}")
    assert browser.faults(page) == []
    assert browser.asked_elsewhere == []


def test_a_class_of_the_map_leads_to_its_failures_without_javascript(browser: Eyes, long: Served) -> None:
    page = browser.open(long.at("/failures?days=0"))
    page.get_by_role("region", name="Table of classes by week").get_by_role("link", name="HungWorker").click()
    page.wait_for_url("**/failures?class=HungWorker&days=0&name=")
    groups = page.get_by_role("region", name="Table of equal failures").locator("tbody tr")
    assert groups.count() > 0
    assert all("HungWorker" in text for text in groups.all_inner_texts())


def test_each_choice_of_failures_changes_the_page(browser: Eyes, long: Served) -> None:
    page = browser.open(long.at("/failures?days=0"))
    count = page.locator("dd").first.inner_text()
    page.locator("select[name=class]").select_option("StorageIoError")
    page.locator("select[name=name]").select_option(index=1)
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**class=StorageIoError**")
    assert page.locator("dd").first.inner_text() != count
    page.get_by_role("link", name="Show all").click()
    page.wait_for_url("**/failures")
    assert page.locator("select[name=class]").input_value() == ""


def test_goodput_by_name_leads_to_one_name(browser: Eyes, long: Served) -> None:
    page = browser.open(long.at("/goodput?days=0"))
    page.locator("select[name=by]").select_option("name")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**by=name**")
    first = page.locator("tbody th a").first
    name = first.inner_text()
    first.click()
    page.wait_for_url(f"**/goodput?name={name}&days=0")
    assert page.locator("select[name=name]").input_value() == name


#: Measured in one call: between two calls the page's width may change, as when a scroll bar comes.
MEASURE = """() => [...document.querySelectorAll("td svg.bar")].map(bar => ({
    label: bar.getAttribute("aria-label"),
    width: bar.getBoundingClientRect().width,
    pieces: [...bar.querySelectorAll("rect")].map(piece => piece.getBoundingClientRect().width),
}))"""


def test_every_bar_is_as_wide_as_its_cell_and_says_what_it_shows(browser: Eyes, long: Served) -> None:
    page = browser.open(long.at("/goodput?days=0&by=week"), script=True)
    page.wait_for_selector("svg.bar")
    bars = page.evaluate(MEASURE)
    assert len(bars) > 5
    for bar in bars:
        assert "productive: " in bar["label"]
        assert bar["width"] > 100 and sum(bar["pieces"]) == pytest.approx(bar["width"], rel=0.02)


@pytest.mark.real
def test_words_of_a_program_are_text_on_the_page(browser: Eyes, web_of: Callable[..., Served], tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run(home, script(tmp_path, HOSTILE), "--max-restarts", "0") != 0
    page = browser.open(web_of(home).at("/failures"), script=True)
    page.wait_for_selector("table")
    assert page.title().startswith("Failures")
    told = page.locator("td.cause").first.inner_text()
    assert "<script>document.title='taken'</script>" in told and "\u202e" not in told
    assert page.locator("main script, main img").count() == 0
    assert browser.console_errors == []
