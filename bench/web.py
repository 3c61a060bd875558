"""How long the pages of `holdfast web` take over a long history, and how large they are.

    python bench/web.py [--jobs 5000] [--ranks 10000] [--runs 5] [--write] [--smoke]

A real server and a real Chromium (Debian's, driven by Playwright); without one the column of the first paint is empty.
The first paint counts from the click, in a browser that holds nothing of the site but its cookie.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _common import holdfast, median, put, spread, surroundings

from holdfast_testing.history_generator import make_history

MOST_BYTES = 300_000
MOST_PAINT_MS = 800.0
_PAINT = """() => new Promise(done => {
  const seen = entries => entries.find(entry => entry.name === 'first-contentful-paint');
  const at = seen(performance.getEntriesByType('paint'));
  if (at) { done(at.startTime); return; }
  new PerformanceObserver((list, observer) => {
    const found = seen(list.getEntries());
    if (found) { observer.disconnect(); done(found.startTime); }
  }).observe({type: 'paint', buffered: true});
})"""


def pages(largest: str) -> tuple[str, ...]:
    return (
        "/",
        "/jobs",
        f"/job/{largest}",
        f"/job/{largest}/1/0",
        "/devices",
        "/checks",
        "/failures",
        "/failures?days=0",
        "/goodput",
        "/goodput?days=0&by=name",
    )


@contextmanager
def served(home: Path) -> Iterator[tuple[str, str]]:
    """Where it answers, and its token."""
    process = subprocess.Popen(
        [*holdfast(), "web", "--port", "0"],
        env=surroundings(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        place, _, token = process.stdout.readline().strip().partition("/?token=")
        yield place, token
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def fetched(place: str, token: str, path: str) -> tuple[float, int] | None:
    """Milliseconds to the last byte, and bytes; None where there is no such page."""
    request = urllib.request.Request(place + path, headers={"Authorization": f"Bearer {token}"})
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            size = len(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    return (time.monotonic() - began) * 1000, size


def painted(place: str, token: str, paths: list[str], runs: int) -> dict[str, list[float]]:
    """Milliseconds to the first paint of each page, each time in a new browser context."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        return {path: [] for path in paths}
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {path: [] for path in paths}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(runs):
            for path in paths:
                context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
                page = context.new_page()
                page.goto(place + path)
                found[path].append(page.evaluate(_PAINT))
                context.close()
        browser.close()
    return found


def table(home: Path, jobs: int, ranks: int, runs: int) -> tuple[str, list[str]]:
    """The figures as Markdown, and what is beyond the aims."""
    largest = make_history(home, jobs=jobs, ranks=ranks, now=time.time())
    lines = ["| page | HTML | first paint |", "|---|---|---|"]
    beyond = []
    with served(home) as (place, token):
        sizes = {path: found for path in pages(largest) if (found := fetched(place, token, path)) is not None}
        paints = painted(place, token, list(sizes), runs)
        for path, (_, size) in sizes.items():
            lines.append(f"| `{path}` | {size / 1000:.0f} KB | {spread(paints[path], 'ms', 0)} |")
            if size > MOST_BYTES:
                beyond.append(f"{path}: {size} bytes")
            if paints[path] and median(paints[path]) > MOST_PAINT_MS:
                beyond.append(f"{path}: {median(paints[path]):.0f} ms to the first paint")
    head = (
        f"{jobs} jobs, the largest of {ranks} ranks; {runs} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    return "\n".join([f"{head} at the end", "", *lines]), beyond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table into docs/internals/benchmarks.md")
    parser.add_argument("--smoke", action="store_true", help="a small history, one run")
    given = parser.parse_args()
    if given.smoke:
        given.jobs, given.ranks, given.runs = 50, 64, 1
    with tempfile.TemporaryDirectory() as folder:
        text, beyond = table(Path(folder) / "home", given.jobs, given.ranks, given.runs)
    print(text)
    for line in beyond:
        print(f"beyond the aim: {line}")
    if given.write:
        put("web", text)


if __name__ == "__main__":
    main()
