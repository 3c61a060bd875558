"""A real Chromium for tests: opens pages, finds faults of accessibility, notes what a page asks for elsewhere."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_WAIT_MS = 20_000


def chromium_path() -> str:
    """The browser; empty where there is none."""
    named = os.environ.get("HOLDFAST_TESTS_CHROMIUM", "")
    found = [named] if named else [path for name in _NAMES if (path := shutil.which(name))]
    return found[0] if found else ""


def missing_browser() -> str:
    """Why there can be no browser here; empty where there can be one."""
    lacking = [name for name in ("playwright", "axe_playwright_python") if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{' and '.join(lacking)} is not installed: pip install playwright axe-playwright-python"
    return "" if chromium_path() else "there is no Chromium: apt-get install -y --no-install-recommends chromium"


@contextmanager
def a_chromium() -> Iterator[Any]:
    """Playwright's `Browser`, for as long as the block lasts."""
    from playwright.sync_api import sync_playwright  # only tests with a browser have it

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        try:
            yield launched
        finally:
            launched.close()


class Eyes:
    """What a test sees of pages. `Page` is Playwright's own, of its synchronous interface."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._contexts: list[Any] = []
        self._own: set[str] = set()
        #: Pages without JavaScript, and how their contexts were made.
        self._silent: dict[Any, dict[str, Any]] = {}
        #: Addresses of other places than those that were opened, which a page has asked for.
        self.asked_elsewhere: list[str] = []
        self.console_errors: list[str] = []

    def open(
        self, place: str | Path, *, script: bool = False, dark: bool = False, width: int = 1280, height: int = 900
    ) -> Any:
        """A new page at a file or an address, in a context of its own: no cookie of another page is in it."""
        address = place.as_uri() if isinstance(place, Path) else place
        self._own.add(_origin(address))
        how = {"color_scheme": "dark" if dark else "light", "viewport": {"width": width, "height": height}}
        context = self._chromium.new_context(java_script_enabled=script, **how)
        context.set_default_timeout(_WAIT_MS)
        self._contexts.append(context)
        page = context.new_page()
        if not script:
            self._silent[page] = how
        page.on("request", lambda request: self._note(str(request.url)))
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("console", lambda said: self.console_errors.append(str(said.text)) if said.type == "error" else None)
        page.goto(address)
        return page

    def faults(self, page: Any) -> list[str]:
        """What axe-core finds: `rule: selector: what is wrong`, one for each element.

        axe-core is JavaScript: a page without it is looked at in a copy that runs none but axe-core's.
        """
        from axe_playwright_python.base import AXE_SCRIPT  # only tests with a browser have it

        context = None
        if page in self._silent:
            text: str = page.content()
            context = self._chromium.new_context(**self._silent[page])
            page = context.new_page()
            page.set_content(text)
        try:
            page.evaluate(AXE_SCRIPT)
            found: dict[str, Any] = page.evaluate(
                "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", _RULES
            )
        finally:
            if context is not None:
                context.close()
        return [
            f"{rule['id']}: {' '.join(str(part) for part in node['target'])}: {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]

    def picture(self, page: Any, name: str) -> None:
        """A screenshot of the whole page, for people; nothing without HOLDFAST_TESTS_PICTURES."""
        if folder := os.environ.get("HOLDFAST_TESTS_PICTURES"):
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _note(self, address: str) -> None:
        if not address.startswith(("data:", "blob:")) and _origin(address) not in self._own:
            self.asked_elsewhere.append(address)


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
