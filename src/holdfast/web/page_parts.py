"""A page consists of an address, a reader and a template.

The reader is a plain function that turns a request into one value. It runs in a thread, and only reads. The template
shows the value as HTML. The page's `.json` form shows the same value as JSON.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import JobView, Survey, look, look_at


class NoSuchPage(HoldfastError):
    """Raised if the requested page does not exist. The hint is the address of a page that does."""


class BadRequest(HoldfastError):
    """Raised if a request has an invalid value."""


class Home(NamedTuple):
    """One state directory."""

    #: The key by which addresses name this state directory, if there are several.
    key: str
    path: Path
    #: Whether the state directory belongs to the user of this server, so that changes are allowed.
    mine: bool


class PageRequest(NamedTuple):
    """One request. `now`: seconds since the epoch."""

    homes: tuple[Home, ...]
    now: float
    #: The values of the placeholders in the page's path.
    path: Mapping[str, str]
    query: Mapping[str, str]

    def surveys(self) -> Iterator[tuple[Home, Survey]]:
        """Yield each state directory with all its jobs. Write nothing, and do not close lost jobs."""
        for home in self.homes:
            yield home, look(home.path)

    def home(self) -> Home:
        """Return the state directory in the address; the first state directory if the address names none."""
        key = self.query.get("home", "")
        for home in self.homes:
            if key in ("", home.key):
                return home
        raise NoSuchPage(f"no state directory is served under the key `{key}`", hint="/")

    def job(self) -> tuple[Home, JobView]:
        """Return the job in the address and its state directory. Raise `NoSuchPage`."""
        wanted, key = self.path.get("job", ""), self.query.get("home", "")
        for home in self.homes:
            if key in ("", home.key) and (found := look_at(home.path, wanted)) is not None:
                return home, found
        # The journal does not have it: a job's directory may.
        for home, survey in self.surveys():
            if key in ("", home.key):
                for view in survey.jobs:
                    if view.id == wanted:
                        return home, view
        raise NoSuchPage(f"there is no job `{wanted}`", hint="/jobs")

    def at(self, home: Home) -> str:
        """Return the query that selects this state directory; empty if the server has only one."""
        return f"?home={home.key}" if len(self.homes) > 1 else ""


def home_of(path: Path, user: int) -> Home:
    """Return the state directory at `path`. `user`: uid of this server's user. Raises OSError."""
    key = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
    return Home(key, path, path.stat().st_uid == user)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server at this address."""
    try:
        address = ipaddress.ip_address(host)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return host == "localhost"


class Page(NamedTuple):
    """One page of the web server. Pages with a name are in the navigation."""

    #: The path of the page's address, such as `/jobs` or `/job/{job}`. The path of the JSON form ends with `.json`.
    path: str
    template: str
    read: Callable[[PageRequest], Noun]
    name: str = ""
