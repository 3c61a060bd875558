"""The parts of a page: an address, a reader that turns a request into one value, and a template that shows the value.

The same value is the page's `.json` twin. A reader is a plain function; it runs in a thread, and only reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import JobView, Survey, look


class NoSuchPage(HoldfastError):
    """There is no such page: the request, and the existing ones."""


class BadRequest(HoldfastError):
    """The request asks for something forbidden, or has an invalid value."""


class Home(NamedTuple):
    """One state directory."""

    #: Its name in addresses where there are several.
    key: str
    path: Path
    #: It belongs to the user of this server: changes are allowed.
    mine: bool


class PageRequest(NamedTuple):
    """One request. `now`: seconds since the epoch."""

    homes: tuple[Home, ...]
    now: float
    #: The parts of the address that the pattern names.
    path: Mapping[str, str]
    query: Mapping[str, str]

    def surveys(self) -> Iterator[tuple[Home, Survey]]:
        """All jobs of each state directory; the reader writes nothing and closes no job."""
        for home in self.homes:
            yield home, look(home.path)

    def home(self) -> Home:
        """The state directory in the address; the first where it names none."""
        key = self.query.get("home", "")
        for home in self.homes:
            if key in ("", home.key):
                return home
        raise NoSuchPage(f"no state directory is served under the key `{key}`", hint="/")

    def job(self) -> tuple[Home, JobView]:
        """The job in the address. Raises `NoSuchPage`."""
        wanted, key = self.path.get("job", ""), self.query.get("home", "")
        for home, survey in self.surveys():
            if key in ("", home.key):
                for view in survey.jobs:
                    if view.id == wanted:
                        return home, view
        raise NoSuchPage(f"there is no job `{wanted}`", hint="/jobs")

    def at(self, home: Home) -> str:
        """The end of an address that selects this state directory; empty where there is only one."""
        return f"?home={home.key}" if len(self.homes) > 1 else ""


def home_of(path: Path, user: int) -> Home:
    """`user`: the user of this server. Raises OSError."""
    key = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
    return Home(key, path, path.stat().st_uid == user)


class Page(NamedTuple):
    """One page. It is in the navigation if it has a name there."""

    #: `/jobs`, `/job/{job}`; its twin ends with `.json`.
    path: str
    template: str
    read: Callable[[PageRequest], Noun]
    name: str = ""
