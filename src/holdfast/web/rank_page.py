"""The page of one rank in one attempt: its logs with the deciding line, and the ranks' places in the code at a hang."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.environment_diff import FILE, MOST_BYTES, OWN, Difference, differences
from holdfast.model.events import Event, EvidenceCollected, HangFound
from holdfast.model.evidence import HangEvidence, RankSnapshot
from holdfast.model.exit_report import ExitReport
from holdfast.model.human_format import ranks
from holdfast.model.noun_base import Noun
from holdfast.record.job_directory import logs_of
from holdfast.record.job_views import Survey, detail
from holdfast.report.log_files import STREAMS, LogPart, attempts_of, parts_of
from holdfast.safe_files import opened
from holdfast.untrusted import Malformed, json_as
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.log_excerpt import Excerpt, TimedLine, by_time, excerpt
from holdfast.web.page_parts import BadRequest, Home, NoSuchPage, Page, PageRequest

MOST_STACKS = 30
MOST_FRAMES = 40
#: Matches the source of an evidence item, such as `worker-1 stderr:4`.
_NUMBERED = re.compile(r"-(\d+) (stdout|stderr):(\d+)$")


class EnvironmentComparison(Noun, frozen=True, kw_only=True):
    """The environments of one rank in two attempts."""

    #: The number of the earlier attempt.
    before: int
    differences: tuple[Difference, ...]
    #: Environment variables that differ between any two attempts. They are not compared.
    own: tuple[str, ...] = tuple(sorted(OWN))


class Stack(Noun, frozen=True, kw_only=True):
    """A group of ranks that were at the same place in the code."""

    ranks: str
    #: Whether the rank that this page shows is in the group.
    here: bool
    state: str
    place: str
    frames: str


class RankPage(Noun, frozen=True, kw_only=True):
    """The content of the page of one rank."""

    title: str
    job: str
    name: str
    job_href: str
    attempt: int
    rank: int
    role: str
    query: str = ""
    logs: tuple[Excerpt, ...]
    #: The path of the rank's page, without its query.
    address: str
    home_key: str = ""
    #: All attempts in which this rank has logs.
    attempts: tuple[int, ...] = ()
    #: Why the attempt ended, if this rank was the culprit; else empty.
    reason: str = ""
    hang: str = ""
    #: The lines of both streams, merged by time, if the request has `by=time`.
    merged: tuple[TimedLine, ...] = ()
    stacks: tuple[Stack, ...] = ()
    #: How the environment differs from the previous attempt's; None: there is no previous attempt, or an environment
    #: was not saved.
    environment: EnvironmentComparison | None = None


def read(ask: PageRequest) -> RankPage:
    """Read the rank's logs, and build the page.

    Raise `NoSuchPage` for an unknown rank, `BadRequest` for an invalid line number.
    """
    home, view = ask.job()
    attempt, rank, parts = parts_asked(ask, home)
    known = detail(Survey(home=home.path, jobs=(view,)), view)
    reports = {record.attempt: record.report for record in known.attempts}
    report = reports.get(attempt)
    decided = deciding(report, rank) if report else {}
    line, stream, wanted = _line(ask), ask.query.get("stream", ""), ask.query.get("q", "").strip()[:200]
    hang = _hang(REMEMBERED.events(home.path, view.id), attempt)
    at = f"/job/{view.id}/{attempt}/{rank}"
    directories = _directories(home.path, view.id, parts[0].role, rank)
    logs = tuple(
        excerpt(
            Path(part.path),
            part.stream,
            around=line if line and stream in ("", part.stream) else decided.get(part.stream, 0),
            deciding=decided.get(part.stream, 0),
            wanted=wanted,
        )
        for part in sorted(parts, key=lambda part: part.stream not in decided)
    )
    return RankPage(
        title=f"{view.name} rank {rank}",
        job=view.id,
        name=view.name,
        job_href=f"/job/{view.id}{ask.at(home)}",
        attempt=attempt,
        rank=rank,
        role=parts[0].role,
        query=wanted,
        logs=logs,
        merged=by_time(logs) if ask.query.get("by") == "time" else (),
        address=at,
        home_key=home.key if len(ask.homes) > 1 else "",
        attempts=tuple(number for number, _ in directories),
        reason=report.reason if report and report.first and report.first.rank == rank else "",
        hang=hang.why if hang else "",
        stacks=stacks(hang, rank) if hang else (),
        environment=_compare_environments(directories, attempt),
    )


PAGE = Page("/job/{job}/{attempt:number}/{rank:number}", "rank.html", read)


def parts_asked(ask: PageRequest, home: Home) -> tuple[int, int, list[LogPart]]:
    """Return the attempt, rank and logs that the address names. Raise `NoSuchPage`."""
    job, attempt, rank = ask.path["job"], int(ask.path["attempt"]), int(ask.path["rank"])
    parts = [part for part in parts_of(home.path, job, attempt) if part.rank == rank]
    if not parts:
        raise NoSuchPage(f"attempt {attempt} of job {job} has no logs of rank {rank} here", hint=f"/job/{job}")
    return attempt, rank, parts


def _directories(home: Path, job: str, role: str, rank: int) -> list[tuple[int, Path]]:
    """Return (attempt, log directory) for each attempt in which this rank has logs."""
    logs = logs_of(home, job)
    found = ((number, logs / f"attempt-{number}" / f"{role}-{rank}") for number in attempts_of(home, job))
    return [(number, directory) for number, directory in found if directory.is_dir()]


def log_asked(ask: PageRequest) -> tuple[str, Path]:
    """Return the file name for the download of the log that the address names, and its path. Raise `NoSuchPage`."""
    home, view = ask.job()
    attempt, rank, parts = parts_asked(ask, home)
    for part in parts:
        if part.stream == ask.path["stream"]:
            return f"{view.id}-attempt-{attempt}-rank-{rank}-{part.stream}.log", Path(part.path)
    raise NoSuchPage(f"expected stream {' or '.join(STREAMS)}", hint=f"/job/{view.id}/{attempt}/{rank}")


def deciding(report: ExitReport, rank: int) -> dict[str, int]:
    """Return stream → the number of the first line of this rank's log that the report quotes."""
    found: dict[str, int] = {}
    for one in report.evidence:
        if (match := _NUMBERED.search(one.source)) and int(match[1]) == rank:
            found.setdefault(match[2], int(match[3]))
    return found


def stacks(hang: HangEvidence, rank: int) -> tuple[Stack, ...]:
    """Group the ranks of the last stack dump by place. Groups with a culprit come first, then the smallest groups."""
    alike: defaultdict[tuple[str, str], list[RankSnapshot]] = defaultdict(list)
    for snapshot in hang.looks[-1] if hang.looks else ():
        state = snapshot.threads[0].state if snapshot.threads else ""
        alike[state, place_of(snapshot)].append(snapshot)
    found = sorted(
        alike.items(), key=lambda item: (not any(one.rank in hang.culprits for one in item[1]), len(item[1]))
    )
    return tuple(
        Stack(
            ranks=ranks([one.rank for one in same]),
            here=any(one.rank == rank for one in same),
            state=state,
            place=place,
            frames="\n".join(_frames(same[0])[:MOST_FRAMES]),
        )
        for (state, place), same in found[:MOST_STACKS]
    )


def place_of(snapshot: RankSnapshot) -> str:
    """Return a rank's place in the code: its innermost line of Python, and the native call made from that line. Without
    a stack, return the kernel function in which a thread waits.
    """
    frames = _frames(snapshot)
    if not frames:
        waits = next((thread.waits_in for thread in snapshot.threads if thread.waits_in), "")
        return waits or snapshot.stack_source or "no stack could be read"
    python = next((frame for frame in frames if ".py:" in frame), frames[0])
    return python if python == frames[0] else f"{python}, in {frames[0]}"


def _frames(snapshot: RankSnapshot) -> tuple[str, ...]:
    return next((thread.frames for thread in snapshot.threads if thread.frames), ())


def _hang(history: Sequence[tuple[float, Event]], attempt: int) -> HangEvidence | None:
    """Return the attempt's hang as it was last known. The evidence at its end also has the stacks that the ranks
    printed when they were killed.
    """
    found = None
    for _, event in history:
        if isinstance(event, HangFound) and event.attempt == attempt:
            found = event.evidence
        elif isinstance(event, EvidenceCollected) and event.attempt == attempt and event.evidence.hang is not None:
            found = event.evidence.hang
    return found


def _line(ask: PageRequest) -> int:
    given = ask.query.get("line", "0")
    if not given.isascii() or not given.isdigit():
        raise BadRequest(f"`line` is {given!r}; expected the number of a line")
    return int(given[:12])


# ----------------------------------------------------------------------- functions that compare the rank's environments


def _compare_environments(directories: Sequence[tuple[int, Path]], attempt: int) -> EnvironmentComparison | None:
    """Compare the rank's environment in `attempt` with that in the previous attempt.

    `directories`: (attempt, the rank's log directory). Return None if one of the two attempts saved no environment.
    """
    earlier = [number for number, _ in directories if number < attempt]
    places = dict(directories)
    if not earlier or attempt not in places:
        return None
    before = max(earlier)
    old, new = _kept(places[before]), _kept(places[attempt])
    return EnvironmentComparison(before=before, differences=differences(old, new)) if old and new else None


def _kept(directory: Path) -> dict[str, str]:
    """Read the environment that was saved in this directory; empty if it is missing or unreadable."""
    try:
        with opened(directory / FILE, link=False) as file:  # a worker could link it to a file of root's
            return json_as(file.read(MOST_BYTES + 1), dict[str, str], most_bytes=MOST_BYTES)
    except (OSError, Malformed):
        return {}
