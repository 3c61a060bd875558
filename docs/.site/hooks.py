"""What the site adds to the pages: two lists in the navigation, and links from a page to a file of the repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LISTS = {"Failure classes": "reference/failures", "Decisions": "internals/decisions"}
"""Entries of the navigation that list every page of a folder."""


def _source() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Source"]).rstrip("/")


def _filled(entries: Any) -> Any:
    if isinstance(entries, list):
        return [_filled(entry) for entry in entries]
    if not isinstance(entries, dict):
        return entries
    filled = {}
    for title, inside in entries.items():
        folder = LISTS.get(title)
        names = sorted(path.name for path in (DOCS / folder).glob("*.md")) if folder else []
        filled[title] = (
            [f"{folder}/{name}" for name in sorted(names, key=lambda name: (name != "index.md", name))]
            if folder
            else _filled(inside)
        )
    return filled


def on_config(config: Any) -> Any:
    """Fill the lists of the navigation."""
    config["nav"] = _filled(config["nav"])
    config["repo_url"] = _source()
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A link that leaves docs/ leads to the file in the repository; one to a file that is not there fails the build."""
    here = (DOCS / page.file.src_uri).parent

    def absolute(link: re.Match[str]) -> str:
        target, _, anchor = link[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        place = (here / target).resolve()
        if place.is_relative_to(DOCS):
            return link[0]  # mkdocs checks these
        if not place.exists():
            raise FileNotFoundError(f"{page.file.src_uri}: the link {link[2]} leads nowhere")
        kind = "tree" if place.is_dir() else "blob"
        return f"{link[1]}{_source()}/{kind}/main/{place.relative_to(ROOT)}{'#' + anchor if anchor else ''})"

    return re.sub(r"(\]\()([^)\s]+)\)", absolute, markdown)
