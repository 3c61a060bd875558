"""The page Failures: classes by week, groups of equal failures, the nodes that they have in common, MTBF and MTTR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.noun_base import Noun
from holdfast.report.statistics.failure_statistics import (
    WEEK_S,
    FailedAttempt,
    FailureGroup,
    by_week,
    failures,
    groups,
    machines,
    mtbf_s,
    mttr_s,
    week_of,
)
from holdfast.web.history_filter import chosen, day
from holdfast.web.page_parts import Home, Page, PageRequest

MOST_GROUPS = 60
MOST_WEEKS = 26
MOST_NODES = 20
#: Maximum number of jobs that are named for a group.
FEW_JOBS = 5
_DAYS = 90
#: Minimum number of failures in a group for which the page names the device or node where at least half of them
#: happened.
SHARED = 3
_SHADES = 5


class Week(Noun, frozen=True, kw_only=True):
    """One cell of the map of classes by week. `shade`: from 0 (no failure) to 5 (as many as in the worst cell)."""

    at: float
    count: int
    shade: int


class ClassRow(Noun, frozen=True, kw_only=True):
    """One failure class. `mttr_s`: mean time to recover in seconds; None if no attempt followed."""

    phrase: str
    count: int
    weeks: tuple[Week, ...]
    mttr_s: float | None = None


class JobLink(Noun, frozen=True, kw_only=True):
    id: str
    name: str
    href: str


class GroupRow(Noun, frozen=True, kw_only=True):
    """A group of failures that differ only in numbers, paths, machines or devices."""

    fingerprint: str
    phrase: str
    blame: str
    #: The reason in the report of the newest failure.
    reason: str
    count: int
    first_at: float
    last_at: float
    jobs: int
    newest: tuple[JobLink, ...]
    nodes: int
    #: A text such as `4 of 5 on gpu-07` if at least half of the failures happened on one node or device; else empty.
    shared: str = ""
    retried: int
    helped: int


class NodeRow(Noun, frozen=True, kw_only=True):
    """A node, and the number of failures whose culprit was on it."""

    node: str
    count: int
    phrases: dict[str, int]


class FailuresPage(Noun, frozen=True, kw_only=True):
    """The content of the page Failures. Times are seconds."""

    title: str = "Failures"
    count: int
    jobs: int
    mtbf_s: float | None
    mttr_s: float | None
    #: The weeks of the map, as the dates of their Mondays, the newest last.
    weeks: tuple[str, ...]
    classes: tuple[ClassRow, ...]
    groups: tuple[GroupRow, ...]
    left_out: int
    nodes: tuple[NodeRow, ...]
    days: int
    name: str
    #: The failure class in the address; empty: any class.
    phrase: str
    names: tuple[str, ...]
    trouble: tuple[str, ...]


def read(ask: PageRequest) -> FailuresPage:
    """Read the failures from the journals, and build the page.

    Raise `BadRequest` for an address with an invalid choice.
    """
    wanted = chosen(ask, days=_DAYS)
    jobs = wanted.of()
    every = list(failures(jobs))
    phrase = ask.query.get("class", "")
    found = [failure for failure in every if phrase in ("", failure.record.report.phrase)]
    grouped = groups(found)
    homes = {job.view.id: home for home, job in wanted.jobs}
    recovery = mttr_s(jobs)
    weeks = _weeks(ask.now, every, wanted.days)
    several = len(machines(jobs)) > 1
    return FailuresPage(
        count=len(found),
        jobs=len(jobs),
        mtbf_s=mtbf_s(jobs),
        mttr_s=recovery.get(""),
        weeks=tuple(day(week) for week in weeks),
        classes=tuple(_classes(every, weeks, recovery)),
        groups=tuple(_group(ask, homes, group, several) for group in grouped[:MOST_GROUPS]),
        left_out=max(len(grouped) - MOST_GROUPS, 0),
        nodes=_nodes(found),
        days=wanted.days,
        name=wanted.name,
        phrase=phrase,
        names=wanted.names,
        trouble=wanted.trouble,
    )


PAGE = Page("/failures", "failures.html", read, "Failures")


def _weeks(now: float, found: Sequence[FailedAttempt], days: int) -> tuple[float, ...]:
    """Return the Mondays of the map's weeks in seconds since the epoch, newest last."""
    last = week_of(now)
    first = min((week_of(failure.at) for failure in found), default=last)
    count = min(int((last - first) // WEEK_S) + 1, MOST_WEEKS, days // 7 + 2 if days else MOST_WEEKS)
    return tuple(last - WEEK_S * back for back in reversed(range(max(count, 1))))


def _classes(
    found: Iterable[FailedAttempt], weeks: tuple[float, ...], recovery: dict[str, float]
) -> Iterable[ClassRow]:
    counted = by_week(found)
    worst = max((count for of_class in counted.values() for count in of_class.values()), default=1)
    for phrase, of_class in counted.items():
        cells = [(week, of_class.get(week, 0)) for week in weeks]
        yield ClassRow(
            phrase=phrase,
            count=sum(of_class.values()),
            weeks=tuple(Week(at=at, count=count, shade=-(-count * _SHADES // worst)) for at, count in cells),
            mttr_s=recovery.get(phrase),
        )


def _group(ask: PageRequest, homes: dict[str, Home], group: FailureGroup, several: bool) -> GroupRow:
    links = []
    for failure in group.failures:
        link = JobLink(
            id=failure.job_id, name=failure.name, href=f"/job/{failure.job_id}{ask.at(homes[failure.job_id])}"
        )
        if link not in links:
            links.append(link)
        if len(links) == FEW_JOBS:
            break
    return GroupRow(
        fingerprint=group.key,
        phrase=group.phrase,
        blame=group.blame.value,
        reason=group.failures[0].record.report.reason,
        count=group.count,
        first_at=group.first_at,
        last_at=group.last_at,
        jobs=len(group.jobs),
        newest=tuple(links),
        nodes=len(group.nodes),
        shared=_shared(group, several),
        retried=group.retried,
        helped=group.helped,
    )


def _shared(group: FailureGroup, several: bool) -> str:
    """Return a text such as `4 of 5 on gpu-07` about the device or node with at least half of the failures, or "".

    A device is preferred because it is more precise. `several`: the jobs ran on several nodes. If not, name no node,
    because the only node is no sign of the cause.
    """
    for counted in (group.devices, group.nodes) if several else (group.devices,):
        for place, count in list(counted.items())[:1]:
            if group.count >= SHARED and 2 * count >= group.count:
                return f"{count} of {group.count} on {place}"
    return ""


def _nodes(found: Iterable[FailedAttempt]) -> tuple[NodeRow, ...]:
    counted: dict[str, dict[str, int]] = {}
    for failure in found:
        report = failure.record.report
        if report.first is not None and report.first.node:
            of_node = counted.setdefault(report.first.node, {})
            of_node[report.phrase] = of_node.get(report.phrase, 0) + 1
    rows = [
        NodeRow(
            node=node, count=sum(phrases.values()), phrases=dict(sorted(phrases.items(), key=lambda item: -item[1]))
        )
        for node, phrases in counted.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.node))[:MOST_NODES])
