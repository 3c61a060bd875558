"""The page of one moment: the last lines of each rank before it. The cursor of the swimlane links to this page."""

from __future__ import annotations

import math
from collections import deque

from holdfast.model.decisions import AttemptRecord
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import JobView, Survey, detail
from holdfast.report.log_files import LogPart, attempts_of, parts_of
from holdfast.report.merged_logs import LogCursor, LogLineFilter, fitting
from holdfast.web.log_excerpt import shown
from holdfast.web.page_parts import BadRequest, Home, NoSuchPage, Page, PageRequest

#: The length of the window before the moment, in seconds. Lines are only searched in this window.
WINDOW_S = 60.0
#: Maximum number of lines shown of each stream: the last lines before the moment.
MOST_LINES = 6
#: Limit on the ranks that the page shows; the culprit comes first.
MOST_RANKS = 64
#: Maximum number of bytes read of one log, from the beginning of the window.
MOST_BYTES = 4 << 20
BLOCK_BYTES = 64 << 10
STEPS_S = (-10.0, -1.0, 1.0, 10.0)


class LoggedLine(Noun, frozen=True, kw_only=True):
    """One line of a log. `at`: when it was written, in seconds since the epoch; None: not known."""

    at: float | None
    text: str


class StreamTail(Noun, frozen=True, kw_only=True):
    """The last lines of one stream of one rank before the moment."""

    rank: int
    role: str
    stream: str
    href: str
    culprit: bool = False
    lines: tuple[LoggedLine, ...] = ()
    #: Whether lines just before the moment are missing, because the byte limit was reached.
    cut: bool = False


class NearMoment(Noun, frozen=True, kw_only=True):
    """A link to a moment near the page's moment."""

    name: str
    href: str


class MomentPage(Noun, frozen=True, kw_only=True):
    """The content of the page of one moment."""

    title: str
    job: str
    name: str
    job_href: str
    at: float
    attempt: int
    window_s: float = WINDOW_S
    begun: float
    #: The end of the attempt; for a running attempt, the current time. `begun` is its start.
    over: float
    streams: tuple[StreamTail, ...] = ()
    #: Ranks that wrote nothing in the window.
    silent: tuple[int, ...] = ()
    #: The number of ranks that are not shown.
    more: int = 0
    steps: tuple[NearMoment, ...] = ()
    address: str
    home_key: str = ""


def read(ask: PageRequest) -> MomentPage:
    """Read the logs around the moment, and build the page.

    Raise `NoSuchPage` if the job has no logs, `BadRequest` if the moment is not a number.
    """
    home, view = ask.job()
    known = detail(Survey(home=home.path, jobs=(view,)), view)
    at = _asked(ask, view)
    number, begun, over = _attempt(ask, home, view, known.attempts, at)
    report = next((record.report for record in known.attempts if record.attempt == number), None)
    culprit = report.first.rank if report and report.first else None
    parts = parts_of(home.path, view.id, number)
    order = sorted({part.rank for part in parts}, key=lambda rank: (rank != culprit, rank))
    chosen = order[:MOST_RANKS]
    streams = [
        _stream(part, at, f"/job/{view.id}/{number}/{part.rank}{ask.at(home)}", culprit)
        for rank in chosen
        for part in parts
        if part.rank == rank
    ]
    spoke = {stream.rank for stream in streams if stream.lines or stream.cut}
    address = f"/job/{view.id}/at"
    more = f"&home={home.key}" if len(ask.homes) > 1 else ""
    return MomentPage(
        title=f"{view.name} at one moment",
        job=view.id,
        name=view.name,
        job_href=f"/job/{view.id}{ask.at(home)}",
        at=at,
        attempt=number,
        begun=begun,
        over=over,
        streams=tuple(stream for stream in streams if stream.lines or stream.cut),
        silent=tuple(sorted(set(chosen) - spoke)),
        more=len(order) - len(chosen),
        steps=tuple(NearMoment(name=f"{step:+g} s", href=f"{address}?t={at + step:.3f}{more}") for step in STEPS_S),
        address=address,
        home_key=home.key if len(ask.homes) > 1 else "",
    )


PAGE = Page("/job/{job}/at", "moment.html", read)


def _asked(ask: PageRequest, view: JobView) -> float:
    """Return the moment in the address.

    If the address has none, return the job's end, or the current time for a running job.
    """
    text = ask.query.get("t", "")
    if not text:
        return ask.now if view.ended is None else view.ended
    try:
        at = float(text)
    except ValueError:
        at = math.nan
    if not math.isfinite(at):
        raise BadRequest(f"`t={text[:40]}` is no moment: expected seconds since 1970, as 1795000000.25", hint="/jobs")
    return at


def _attempt(
    ask: PageRequest, home: Home, view: JobView, records: tuple[AttemptRecord, ...], at: float
) -> tuple[int, float, float]:
    """Return the number, start and end of the attempt that ran at that moment; else of the last attempt that began
    before it."""
    numbers = attempts_of(home.path, view.id)
    if not numbers:
        raise NoSuchPage(f"job `{view.id}` has no logs here", hint=f"/job/{view.id}")
    spans = [(record.attempt, record.started_at, record.ended_at) for record in records if record.attempt in numbers]
    last_end = records[-1].ended_at if records else view.created
    if numbers[-1] not in [number for number, _, _ in spans]:
        spans.append((numbers[-1], last_end, ask.now if view.ended is None else view.ended))
    begun = [span for span in spans if span[1] <= at]
    return begun[-1] if begun else spans[0]


def _stream(part: LogPart, at: float, href: str, culprit: int | None) -> StreamTail:
    last: deque[LoggedLine] = deque(maxlen=MOST_LINES)
    cut = False
    try:
        # Times in logs are in milliseconds, so include lines of the moment's own millisecond.
        source = LogCursor(part, LogLineFilter(since=at - WINDOW_S, until=at + 0.001), BLOCK_BYTES)
        taken = 0
        while (span := source.take(whole_lines=False)) is not None:
            if span.at is None:
                break  # the log has no times, so it is unknown which lines were written before the moment
            taken += len(span.data)
            last.extend(LoggedLine(at=span.at, text=shown(line.rstrip(b"\n"))) for line in fitting(span.data, None))
            if taken > MOST_BYTES:
                cut = True
                break
    except OSError:
        last.clear()  # the log was deleted after the page began to read it
    return StreamTail(
        rank=part.rank,
        role=part.role,
        stream=part.stream,
        href=href,
        culprit=part.rank == culprit,
        lines=tuple(last),
        cut=cut,
    )
