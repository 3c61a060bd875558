"""`holdfast web` in a real Chromium: every page opened, every button used, and an open page that follows a job."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eyes import Eyes
from web_site import Served, environment, run, script

WAITS = """
    import os, time
    from pathlib import Path
    from holdfast.worker import progress
    said = 0
    while not Path("go-on").exists():
        said += 1
        progress(said)
        print("<img src=x onerror=document.title='in'> said", said, flush=True)
        time.sleep(0.2)
    raise SystemExit(3)
"""
PAGES = (
    "/",
    "/jobs",
    "/devices",
    "/failures",
    "/goodput",
    "/checks",
    "/job/@broken",
    "/job/@broken/4/1",
    "/job/@broken/4/1?by=time",
    "/job/@good",
    "/job/@broken/at",
)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_fault_or_asks_for_anything_elsewhere(
    browser: Eyes, web: Served, jobs: dict[str, str], path: str
) -> None:
    page = at(browser, web, re.sub("@([a-z]+)", lambda found: jobs[found[1]], path))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        browser.picture(page, f"web{re.sub('[/?=]', '-', path).replace('@', '')}-{scheme}")
        assert browser.faults(page) == [], scheme
    assert browser.asked_elsewhere == []


def test_without_javascript_jobs_are_filtered_and_a_log_is_searched(
    browser: Eyes, web: Served, jobs: dict[str, str]
) -> None:
    page = at(browser, web, "/jobs", script=False)
    page.get_by_label("State").select_option("failed")
    page.get_by_role("button", name="Show").click()
    assert page.locator("#jobs tbody tr").count() == 1
    page.locator(f"a[href='/job/{jobs['broken']}']").click()
    page.get_by_role("link", name="rank 1").first.click()
    page.get_by_label("Search the logs").fill("columns")
    page.get_by_role("button", name="Search").click()
    assert page.get_by_text("2 of 4 lines have “columns”").is_visible()
    page.get_by_role("link", name="All lines").click()
    page.get_by_role("link", name="The deciding line is 4").click()
    assert page.locator("#stderr-4").inner_text().endswith("ValueError: expected 4 columns, got 4\n")
    with page.expect_download() as got:
        page.get_by_role("link", name="Download").first.click()
    assert "expected 4 columns" in Path(got.value.path()).read_text()
    page.get_by_role("link", name="Now").click()
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("link", name="Show all").click()
    assert page.locator("#jobs tbody tr").count() == len(jobs)


def test_the_token_leaves_the_address_and_the_twin_opens(browser: Eyes, web: Served) -> None:
    page = at(browser, web, "/jobs?sort=name")
    assert page.url.endswith("/jobs?sort=name")
    page.get_by_role("link", name="This page as JSON").click()
    assert page.url.endswith("/jobs.json?sort=name") and '"jobs":[' in page.content()


def test_times_are_shown_as_ages_and_in_utc(browser: Eyes, web: Served, jobs: dict[str, str]) -> None:
    page = at(browser, web, f"/job/{jobs['good']}")
    shown = page.locator("#head time").first
    button = page.get_by_role("button", name="Times")
    button.click()
    assert shown.inner_text().endswith("ago")
    button.click()
    assert shown.inner_text().endswith("UTC") and button.inner_text() == "Times: UTC"
    button.click()
    assert button.inner_text() == "Times: local"


def test_a_command_is_copied(browser: Eyes, web: Served, jobs: dict[str, str]) -> None:
    page = at(browser, web, f"/job/{jobs['broken']}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith(f"holdfast logs {jobs['broken']}")


def test_the_keyboard_alone_leads_to_a_job(browser: Eyes, web: Served) -> None:
    page = at(browser, web, "/jobs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    for _ in range(30):
        page.keyboard.press("Tab")
        if "/job/" in str(page.evaluate("document.activeElement.getAttribute('href') || ''")):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/job/*")


def test_a_device_is_released_and_reported_with_the_pages_own_buttons(
    browser: Eyes, web_of: Callable[..., Served], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for _ in range(3):
        report = ["faults", "report", "--device", "gpu3", "--code", "48", "--once"]
        subprocess.run([sys.executable, "-m", "holdfast", *report], env=environment(home), check=True)
    page = at(browser, web_of(home), "/devices")
    row = page.locator("tr", has_text="gpu3").first
    assert "HELD" in row.inner_text()
    page.get_by_text("Release…").click()
    page.get_by_label("Reason").fill("memory replaced")
    assert browser.faults(page) == []
    page.get_by_role("button", name="Release gpu3").click()
    page.get_by_text("released by").wait_for()
    page.get_by_role("link", name="To the devices").click()
    assert "HELD" not in row.inner_text() and page.get_by_text("released: memory replaced").is_visible()
    page.get_by_text("Report a fault…").click()
    page.get_by_label("Device or node").fill("gpu5")
    page.get_by_label("Code").fill("79")
    page.get_by_role("button", name="Report", exact=True).click()
    page.get_by_role("link", name="To the devices").click()
    page.get_by_role("button", name="Report that 79 is over").click()
    page.get_by_role("link", name="To the devices").click()
    assert "HEALTHY" in page.locator("tr", has_text="gpu5").first.inner_text()


def test_an_open_page_follows_a_job_and_what_the_job_writes_runs_in_no_page(
    browser: Eyes, web_of: Callable[..., Served], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    run(home, script(tmp_path, "print(1)", "first.py"), "--name", "first")
    server = web_of(home)
    first, log = at(browser, server, "/"), None
    first.get_by_text("No job runs.").wait_for()
    words = ["run", "--no-checks", "--nproc-per-node", "2", "--max-restarts", "0", "--name", "live"]
    typed = [sys.executable, "-m", "holdfast", *words, str(script(tmp_path, WAITS))]
    job = subprocess.Popen(
        typed, env=environment(home), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        first.get_by_role("link", name="live").wait_for()
        first.get_by_text("RUNNING", exact=True).wait_for()
        first.get_by_text("steps/s").wait_for()
        [view] = [one for one in server.ask("/now.json").json["running"] if one["name"] == "live"]
        log = at(browser, server, f"/job/{view['id']}/1/0")
        log.locator("#log-stdout").get_by_text(re.compile(r"said 1\b")).first.wait_for()
        page = at(browser, server, f"/job/{view['id']}")
        page.get_by_text("Attempt 1 is RUNNING").wait_for()
        page.get_by_text(re.compile("^Pace: ")).wait_for(timeout=60_000)
        [node] = server.ask(f"/job/{view['id']}.json").json["running"]["nodes"]
        assert page.locator("tr", has_text="2 up").inner_text().startswith(node["node"])
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert browser.faults(page) == [], scheme
        for width in NARROW:
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            browser.picture(page, f"web-job-running-{width}")
        log.locator("#log-stdout pre > span").nth(log.locator("#log-stdout pre > span").count()).wait_for()
        (tmp_path / "go-on").write_text("now")
        page.locator("#head .failed").wait_for()
        page.get_by_text("restarts are switched off").first.wait_for()
        assert page.get_by_role("button", name="Copy").first.is_visible()
        first.locator("#attention summary").get_by_text("live", exact=True).wait_for()
        assert log.title() != "in" and log.locator("#main img").count() == 0
        browser.picture(first, "web-now-after")
        browser.picture(page, "web-job-after")
        assert job.wait(timeout=90) != 0
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(timeout=60)


#: Telephones, and a window of 1280 at a zoom of 200 %.
NARROW = (320, 390, 640)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("width", NARROW)
def test_a_narrow_window_scrolls_tables_and_not_the_page(
    browser: Eyes, web: Served, jobs: dict[str, str], path: str, width: int
) -> None:
    page = at(browser, web, re.sub("@([a-z]+)", lambda found: jobs[found[1]], path), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tops = page.locator("nav a").evaluate_all("links => links.map(each => each.offsetTop)")
    assert width < 360 or max(tops) - min(tops) < 5, "the header is one line"


def test_a_group_of_equal_failures_has_no_fault_in_light_dark_and_narrow(browser: Eyes, web: Served) -> None:
    page = at(browser, web, "/failures?days=0")
    page.locator("a[href^='/failures/group']").first.click()
    page.get_by_role("heading", level=1).wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert browser.faults(page) == [], scheme
    for width in NARROW:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_nothing_moves_for_those_who_want_no_motion(browser: Eyes, web: Served, jobs: dict[str, str]) -> None:
    for path in ("/", f"/job/{jobs['broken']}"):
        page = at(browser, web, path)
        page.emulate_media(reduced_motion="reduce")
        page.locator("details summary").first.click()
        assert page.evaluate("document.getAnimations().length") == 0
        moving = """[...document.querySelectorAll('*')].filter(each => {
            const style = getComputedStyle(each);
            return style.transitionDuration !== '0s' || style.animationName !== 'none'
                || style.scrollBehavior === 'smooth';
        }).length"""
        assert page.evaluate(moving) == 0


def at(browser: Eyes, server: Served, path: str, *, script: bool = True, **how: Any) -> Any:
    """The page behind its link; the first one only leads there."""
    page = browser.open(server.at(path), script=script, **how)
    page.wait_for_url(lambda url: "token=" not in url)
    page.wait_for_load_state("load")
    return page


def test_the_cursor_of_the_swimlane_shows_all_ranks_at_its_moment(
    browser: Eyes, web: Served, jobs: dict[str, str]
) -> None:
    page = at(browser, web, f"/job/{jobs['broken']}", script=False)
    places = page.locator("a:has(> .sw-cursor)")
    places.nth(places.count() - 1).click()
    assert page.url.rpartition("?")[0].endswith(f"/job/{jobs['broken']}/at")
    assert page.locator("pre").filter(has_text="ValueError: expected 4 columns, got 4").count() == 1
    page.get_by_label("Moment of attempt").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Show").click()
    assert page.get_by_text("got 4").count() == 0
