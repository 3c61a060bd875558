"""Renders values as HTML. The template engine escapes every text, and no template disables that."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast.model.human_format import duration
from holdfast.model.noun_base import Noun
from holdfast.record.local_time import clock, local
from holdfast.report.merged_logs import stamp
from holdfast.report.swimlane import Swimlane, figure
from holdfast.report.swimlane.swimlane_model import NodeLanes, SwimlaneRow
from holdfast.safe_text import harmless
from holdfast.version import __version__
from holdfast.web.page_parts import Page, PageRequest
from holdfast.web.web_job_page import LogLink

#: Maximum number of characters shown of one text, such as a piece of evidence.
MOST_TEXT = 4000


def when(at: float) -> Markup:
    """Format a time.

    The page's script shows it as an age, or in UTC if the user chooses. Without scripts it is in local time.
    """
    return Markup('<time data-at="{}">{}</time>').format(f"{at:.3f}", clock(at))


def countdown(at: float) -> Markup:
    """Format a future time. The page's script counts down to it."""
    return Markup('<time data-at="{}" data-count>at {}</time>').format(f"{at:.3f}", clock(at))


def age(at: float, now: float) -> Markup:
    """Format a past time as an age, such as `3 h 20 min ago`. The exact time is its title."""
    text = duration(max(now - at, 0.0))
    return Markup('<time data-at="{}" data-count title="{}">{} ago</time>').format(f"{at:.3f}", clock(at), text)


def hour(at: float) -> str:
    """Format the beginning of an hour in local time, such as `14:00`."""
    return clock(at)[11:16]


def pace(steps_per_s: float) -> str:
    """Format a number of steps per second, as the terminal does."""
    fast = steps_per_s >= 1 or steps_per_s <= 0
    return f"{steps_per_s:.3g} steps/s" if fast else f"{1 / steps_per_s:.3g} s/step"


def cut(text: str) -> str:
    """Cut a long text to `MOST_TEXT` characters."""
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT} characters more"


def size(count: float) -> str:
    """Format a number of bytes with a unit, such as `1.5 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def picture(swimlane: Swimlane, address: str, more: str, logs: Iterable[LogLink]) -> Markup:
    """Draw the swimlane as HTML. The swimlane itself escapes its texts, so the template does not.

    `address`: the address of a moment's page. `more`: an addition to that page's query. `logs`: rank → the link for its
    row.
    """
    to = {log.rank: log.href for log in logs}

    def row(_: NodeLanes, lane: SwimlaneRow) -> str | None:
        return to.get(lane.ranks[0]) if lane.ranks else None

    return Markup(figure(swimlane, local, link=row, at=lambda moment: f"{address}?t={moment:.3f}{more}"))


def class_page(phrase: str) -> str:
    """Return the address of a failure class in the documentation."""
    return f"https://holdfast-run.github.io/holdfast/reference/failures/{quote(phrase, safe='')}/"


class Rendering:
    """Renders the templates. `pages`: all pages, for the navigation. `form`: the token that forms must contain."""

    def __init__(self, pages: tuple[Page, ...], form: str) -> None:
        self._env = Environment(
            loader=PackageLoader("holdfast.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
            # Clean every text: a job's name or log may contain control characters and text direction marks that garble
            # the page.
            finalize=lambda value: harmless(value) if type(value) is str else value,
        )  # fmt: skip
        self._env.filters |= {
            "when": when,
            "took": duration,
            "exact": stamp,
            "age": age,
            "hour": hour,
            "countdown": countdown,
            "cut": cut,
            "pace": pace,
            "size": size,
            "swimlane": picture,
            "class_page": class_page,
        }
        self._env.globals |= {
            "navigation": [page for page in pages if page.name],
            "version": __version__,
            "form_token": form,
        }

    def page(self, template: str, value: Noun, ask: PageRequest, path: str) -> str:
        """Render a whole page: this template with this value.

        `path`: the path of the request, for the navigation and for the link to the page's `.json` form.
        """
        twin = f"{'/now' if path == '/' else path}.json" + (f"?{_query(ask)}" if ask.query else "")
        return self._env.get_template(template).render(it=value, ask=ask, path=path, twin=twin)

    def done(self, heading: str, text: str) -> str:
        """Render the page that shows the result of a change."""
        empty = PageRequest((), 0.0, {}, {})
        return self._env.get_template("done.html").render(
            heading=heading, text=text, it=None, ask=empty, path="", twin=""
        )

    def trouble(self, status: int, text: str, to: str) -> str:
        """Render the page for an error, with a link to a page that exists."""
        empty = PageRequest((), 0.0, {}, {})
        return self._env.get_template("trouble.html").render(
            status=status, text=text, to=to, it=None, ask=empty, path="", twin=""
        )


def _query(ask: PageRequest) -> str:
    return urlencode(dict(ask.query))
