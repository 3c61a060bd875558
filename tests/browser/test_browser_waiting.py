"""What a page shows of a job that waits: the countdown to its next attempt, and the stacks of ranks that hung."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from eyes import Eyes
from test_browser_web import at
from web_site import Served, environment, run, script

RESETS = "raise ConnectionResetError(104, 'Connection reset by peer')"
WAITS_FOR_ALL_TIME = """
    import os, threading
    def wait_for_peer():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    def read_data():
        os.read(os.pipe()[0], 1)
    print("step 1", flush=True)
    wait_for_peer() if os.environ["RANK"] == "1" else read_data()
"""


def test_the_pause_before_an_attempt_is_counted_down_on_the_pages(
    browser: Eyes, web_of: Callable[..., Served], tmp_path: Path
) -> None:
    home, job_file = tmp_path / "home", tmp_path / "job.json"
    home.mkdir()
    command = [sys.executable, str(script(tmp_path, RESETS))]
    pauses = {"max_restarts": 9, "same_failure": 9, "backoff_s": 600}
    job_file.write_text(
        json.dumps({"name": "pauses", "roles": {"worker": {"count": 1, "command": command}}, "restarts": pauses})
    )
    typed = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--job", str(job_file)]
    job = subprocess.Popen(
        typed, env=environment(home), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        server = web_of(home)
        now = at(browser, server, "/")
        now.get_by_text("BACKOFF").wait_for()
        told = now.locator("dd", has_text="at the latest")
        assert re.fullmatch(r"in \d+ (min|s) at the latest", told.inner_text()), told.inner_text()
        [view] = server.ask("/now.json").json["running"]
        page = at(browser, server, f"/job/{view['id']}")
        page.get_by_text(re.compile(r"^Next decision at the latest in \d+ (min|s)\.$")).wait_for()
        plain = at(browser, server, f"/job/{view['id']}", script=False)
        plain.get_by_text(re.compile(r"^Next decision at the latest at \d{4}-\d\d-\d\d ")).wait_for()
        browser.picture(now, "web-now-pause")
        browser.picture(page, "web-job-pause")
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(timeout=60)


def test_the_stacks_of_a_real_hang_stand_on_the_pages_of_its_ranks(
    browser: Eyes, web_of: Callable[..., Served], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    words = ("--nproc-per-node", "2", "--max-restarts", "0", "--hang-timeout", "3", "--name", "hung")
    run(home, script(tmp_path, WAITS_FOR_ALL_TIME), *words)
    server = web_of(home)
    [job] = server.ask("/jobs.json").json["jobs"]
    page = at(browser, server, f"/job/{job['id']}/1/1")
    stacks = page.locator("#stacks")
    assert "wait_for_peer" in stacks.locator("details[open]", has_text="this page's rank").inner_text()
    assert "read_data" in stacks.locator("details", has_text="rank 0").inner_text()
    assert re.search(r"rank 1 \(this page's rank\): wait_for_peer \(.*job\.py:6\), in ", stacks.inner_text())
    assert browser.faults(page) == []
    browser.picture(page, "web-rank-hung")
