"""The parts of a page: an address, a reader that turns a request into one value, and a template that shows the value.

The same value is the page's `.json` twin. A reader is a plain function; it runs in a thread and only reads.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import JobView, Survey, look


class NoSuchPage(HoldfastError):
    """There is no such page. The hint is the address of an existing one."""


class BadRequest(HoldfastError):
    """The request has an invalid value."""


class Home(NamedTuple):
    """One state directory."""

    #: The key that names it in addresses if there are several state directories.
    key: str
    path: Path
    #: Whether it belongs to the user of this server, so that changes are allowed.
    mine: bool


class PageRequest(NamedTuple):
    """One request. `now`: seconds since the epoch."""

    homes: tuple[Home, ...]
    now: float
    #: The values of the placeholders in the page's path.
    path: Mapping[str, str]
    query: Mapping[str, str]

    def surveys(self) -> Iterator[tuple[Home, Survey]]:
        """Yield each state directory with all its jobs; this writes nothing and closes no job."""
        for home in self.homes:
            yield home, look(home.path)

    def home(self) -> Home:
        """Return the state directory in the address; the first one if the address names none."""
        key = self.query.get("home", "")
        for home in self.homes:
            if key in ("", home.key):
                return home
        raise NoSuchPage(f"no state directory is served under the key `{key}`", hint="/")

    def job(self) -> tuple[Home, JobView]:
        """Return the job in the address and its state directory. Raises `NoSuchPage`."""
        wanted, key = self.path.get("job", ""), self.query.get("home", "")
        for home, survey in self.surveys():
            if key in ("", home.key):
                for view in survey.jobs:
                    if view.id == wanted:
                        return home, view
        raise NoSuchPage(f"there is no job `{wanted}`", hint="/jobs")

    def at(self, home: Home) -> str:
        """Return the query that selects this state directory; empty if there is only one."""
        return f"?home={home.key}" if len(self.homes) > 1 else ""


def home_of(path: Path, user: int) -> Home:
    """Return the state directory at `path`. `user`: uid of this server's user. Raises OSError."""
    key = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
    return Home(key, path, path.stat().st_uid == user)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server at this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Page(NamedTuple):
    """One page. Pages with a name are in the navigation."""

    #: Such as `/jobs` or `/job/{job}`; the path of the twin ends with `.json`.
    path: str
    template: str
    read: Callable[[PageRequest], Noun]
    name: str = ""
