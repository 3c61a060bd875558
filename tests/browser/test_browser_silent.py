"""`holdfast web` in a Chromium that runs no JavaScript: every page opens, and every form and link does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eyes import Eyes
from test_browser_web import PAGES, at
from web_site import Served, environment


@pytest.mark.parametrize("path", PAGES)
def test_without_javascript_a_page_opens_with_no_control_that_does_nothing(
    browser: Eyes, web: Served, jobs: dict[str, str], path: str
) -> None:
    page = at(browser, web, re.sub("@([a-z]+)", lambda found: jobs[found[1]], path), script=False)
    browser.picture(page, f"silent{path.replace('/', '-').replace('@', '')}")
    assert page.locator("h1").is_visible()
    for button in page.get_by_role("button").all():
        if button.is_visible():
            assert button.evaluate("each => each.form !== null || each.tagName === 'SUMMARY'"), button.inner_text()


def test_without_javascript_every_link_of_every_page_leads_to_a_page(
    browser: Eyes, web: Served, jobs: dict[str, str]
) -> None:
    seen: set[str] = set()
    for path in PAGES:
        page = at(browser, web, re.sub("@([a-z]+)", lambda found: jobs[found[1]], path), script=False)
        links = page.locator("a[href^='/'], a[href^='#']").evaluate_all(
            "all => all.map(each => each.getAttribute('href'))"
        )
        for link in links:
            if link.startswith("#"):
                assert page.locator(f"[id='{link[1:]}']").count() == 1, (path, link)
        seen |= {link.partition("#")[0] for link in links if link.startswith("/")}
    assert len(seen) > 30
    slices = [link for link in seen if "/at?t=" in link]
    for link in sorted(seen - set(slices[3:])):
        assert web.ask(link).status == 200, link


def test_without_javascript_failures_and_goodput_are_narrowed(browser: Eyes, web: Served, jobs: dict[str, str]) -> None:
    page = at(browser, web, "/failures", script=False)
    whole = page.locator("#failures").inner_text()
    page.get_by_label("Name").select_option("broken")
    page.get_by_role("button", name="Show").click()
    assert page.locator("#failures").inner_text() != whole
    assert page.get_by_role("link", name=jobs["broken"]).first.is_visible()
    assert page.get_by_role("link", name=jobs["again"]).count() == 0
    page.get_by_role("link", name="Goodput").click()
    page.get_by_label("Rows").select_option("name")
    page.get_by_role("button", name="Show").click()
    assert page.get_by_role("rowheader").all_inner_texts()[0] == "broken", "it lost most"
    page.get_by_role("link", name="broken", exact=True).click()
    assert "name=broken" in page.url and page.locator("tr", has_text="again").count() == 0


def test_without_javascript_a_moment_is_chosen(browser: Eyes, web: Served, jobs: dict[str, str]) -> None:
    page = at(browser, web, f"/job/{jobs['broken']}/at", script=False)
    before = page.url
    page.get_by_role("link", name="-1 s").click()
    assert page.url != before and page.locator("h1").is_visible()


def test_without_javascript_a_device_is_released_and_reported(
    browser: Eyes, web_of: Callable[..., Served], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    report = [sys.executable, "-m", "holdfast", "faults", "report", "--device", "gpu3", "--code", "48", "--once"]
    for _ in range(3):
        subprocess.run(report, env=environment(home), check=True)
    page = at(browser, web_of(home), "/devices", script=False)
    page.get_by_text("Release…").click()
    page.get_by_role("button", name="Release gpu3").click()
    assert page.url.endswith("/devices"), "the browser itself asks for the reason"
    page.get_by_label("Reason").fill("memory <b>replaced</b>")
    page.get_by_role("button", name="Release gpu3").click()
    assert page.get_by_text("released by").is_visible()
    to_devices(page)
    assert "HELD" not in page.locator("tr", has_text="gpu3").first.inner_text()
    assert page.get_by_text("released: memory <b>replaced</b>").is_visible()
    page.get_by_text("Report a fault…").click()
    page.get_by_label("Device or node").fill("gpu5")
    page.get_by_label("Code").fill("79")
    page.get_by_role("button", name="Report", exact=True).click()
    to_devices(page)
    assert "79" in page.locator("tr", has_text="gpu5").first.inner_text()
    page.get_by_role("button", name="Report that 79 is over").click()
    to_devices(page)
    assert "HEALTHY" in page.locator("tr", has_text="gpu5").first.inner_text()


def to_devices(page: Any) -> None:
    page.get_by_role("link", name="To the devices").click()
