"""`holdfast web` by keyboard alone: Tab comes to every control, shows where it is, and leaves every part again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eyes import Eyes
from test_browser_web import PAGES, at
from web_site import Served, run, script

NUMBERED = """() => {
    const all = [...document.querySelectorAll(
        "a[href], button, input, select, textarea, summary, [tabindex='0']")].filter(
        each => each.tabIndex >= 0 && each.type !== "hidden" && each.checkVisibility({visibilityProperty: true}));
    all.forEach((each, number) => { each.dataset.stop = number; });
    return all.length;
}"""
FOCUSED = """() => {
    const each = document.activeElement;
    if (each === document.body) return null;
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    const parts = [each, ...each.querySelectorAll("text, .sw-cursor")].map(part => getComputedStyle(part));
    return {
        stop: each.dataset.stop === undefined ? -1 : Number(each.dataset.stop),
        shown: parts.some(one => one.outlineStyle !== "none" && parseFloat(one.outlineWidth) >= 2)
            || parts.some(one => parseFloat(one.fillOpacity) === .35),
        seen: box.width > 0 && box.right > 0 && box.bottom > 0 && box.top < innerHeight && box.left < innerWidth,
        what: each.outerHTML.slice(0, 200),
    };
}"""


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("with_script", [False, True], ids=["silent", "script"])
def test_tab_comes_to_every_control_in_order_and_out_of_the_page(
    browser: Eyes, web: Served, jobs: dict[str, str], path: str, with_script: bool
) -> None:
    page = at(browser, web, re.sub("@([a-z]+)", lambda found: jobs[found[1]], path), script=with_script)
    count = page.evaluate(NUMBERED)
    stops = []
    for _ in range(2 * count):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None:
            break
        assert found["shown"] and found["seen"], found["what"]
        stops.append(found["stop"])
    assert [stop for stop in stops if stop >= 0] == list(range(count))
    for number in reversed(range(count - 3, count)):
        page.keyboard.press("Shift+Tab")
        if number == count - 1 and page.evaluate(FOCUSED) is None:
            page.keyboard.press("Shift+Tab")
        assert page.evaluate(FOCUSED)["stop"] == number
    browser.picture(page, f"keyboard{path.replace('/', '-').replace('@', '')}")


def test_the_skip_link_leads_to_the_page(browser: Eyes, web: Served) -> None:
    page = at(browser, web, "/jobs", script=False)
    page.keyboard.press("Tab")
    browser.picture(page, "keyboard-skip")
    assert page.get_by_role("link", name="Skip to the page").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "state", "the first control of the page itself"


def test_arrows_move_the_cursor_of_the_swimlane(browser: Eyes, web: Served, jobs: dict[str, str]) -> None:
    page = at(browser, web, f"/job/{jobs['broken']}")
    slices = page.locator("a:has(> .sw-cursor)")
    count = slices.count()
    slices.first.focus()
    for key, number in (("ArrowLeft", 0), ("ArrowRight", 1), ("PageDown", 11), ("ArrowLeft", 10), ("PageUp", 0),
                        ("End", count - 1), ("ArrowRight", count - 1), ("Home", 0), ("PageDown", 10)):  # fmt: skip
        page.keyboard.press(key)
        assert slices.nth(number).evaluate("each => each === document.activeElement"), key
    browser.picture(page, "keyboard-cursor")
    address = slices.nth(10).get_attribute("href")
    page.keyboard.press("Tab")
    assert not slices.nth(11).evaluate("each => each === document.activeElement"), "Tab leaves the cursor"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{address}")


def test_the_lines_of_a_long_log_are_skipped(browser: Eyes, web_of: Callable[..., Served], tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(home, script(tmp_path, "for number in range(400):\n    print('line', number)"), "--name", "long")
    server = web_of(home)
    [job] = server.ask("/jobs.json").json["jobs"]
    page = at(browser, server, f"/job/{job['id']}/1/0", script=False)
    skip = page.get_by_role("link", name="Skip the lines of stdout")
    skip.focus()
    assert skip.bounding_box()["x"] >= 0
    browser.picture(page, "keyboard-lines")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('pre.log') === null")


def test_news_leave_the_focus_where_it_was(browser: Eyes, web_of: Callable[..., Served], tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(home, script(tmp_path, "print(1)", "first.py"), "--name", "first")
    page = at(browser, web_of(home), "/jobs")
    page.get_by_role("region", name="Table of jobs").focus()
    run(home, script(tmp_path, "print(1)", "second.py"), "--name", "second")
    page.get_by_role("link", name="second", exact=True).wait_for()
    assert focused(page) == "Table of jobs"


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.ariaLabel"))
