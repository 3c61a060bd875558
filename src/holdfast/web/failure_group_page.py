"""The page of one group of equal failures: when it was seen, by day, in which jobs and on which nodes."""

from __future__ import annotations

from collections import Counter

from holdfast.model.noun_base import Noun
from holdfast.report.failure_place import cause_of
from holdfast.report.statistics.failure_statistics import FailedAttempt, failures, groups
from holdfast.web.history_filter import DAY_S, chosen, day
from holdfast.web.page_parts import Home, NoSuchPage, Page, PageRequest

#: The chart has at most one bar for each of so many days.
MOST_DAYS = 60
MOST_FAILURES = 100


class DayCount(Noun, frozen=True, kw_only=True):
    """The failures of one day. `height`: in hundredths of the highest bar."""

    day: str
    count: int
    height: int


class GroupFailure(Noun, frozen=True, kw_only=True):
    """One failure of the group. `at`: seconds since the epoch."""

    job: str
    name: str
    href: str
    attempt: int
    at: float
    culprit: str
    #: What the next attempt did: `helped`, `failed again`, or empty if none followed.
    after: str


class FailureGroupPage(Noun, frozen=True, kw_only=True):
    """The content of the page. Times are seconds since the epoch."""

    title: str
    key: str
    cause: str
    phrase: str
    fault: str
    reason: str
    fix: str
    count: int
    first_at: float
    last_at: float
    #: The number of attempts of jobs with the same names that ended after the last failure without this failure.
    ended_since: int
    days: tuple[DayCount, ...]
    nodes: dict[str, int]
    devices: dict[str, int]
    failures: tuple[GroupFailure, ...]
    left_out: int


def read(ask: PageRequest) -> FailureGroupPage:
    """Collect the failures of the group in the address. Raise `NoSuchPage` if no journal has one."""
    wanted = chosen(ask, days=0)
    key = ask.query.get("key", "")
    found = next((group for group in groups(failures(wanted.of())) if group.key == key), None)
    if found is None:
        raise NoSuchPage("no recorded failure belongs to this group", hint="/failures")
    homes = {job.view.id: home for home, job in wanted.jobs}
    report = found.failures[0].record.report
    names = {failure.name for failure in found.failures}
    since = sum(
        record.started_at >= found.last_at for job in wanted.of() if job.view.name in names for record in job.attempts
    )
    return FailureGroupPage(
        title=f"{found.phrase} ×{found.count}",
        key=key,
        cause=cause_of(found.phrase, report),
        phrase=found.phrase,
        fault=found.blame.value,
        reason=report.reason,
        fix=report.solution,
        count=found.count,
        first_at=found.first_at,
        last_at=found.last_at,
        ended_since=since,
        days=_days(ask.now, found.failures),
        nodes=found.nodes,
        devices=found.devices,
        failures=tuple(_failure(ask, homes[one.job_id], one) for one in found.failures[:MOST_FAILURES]),
        left_out=max(found.count - MOST_FAILURES, 0),
    )


PAGE = Page("/failures/group", "failure_group.html", read)


def _days(now: float, found: tuple[FailedAttempt, ...]) -> tuple[DayCount, ...]:
    """Return the days from the first failure to today, the oldest first; at most the last `MOST_DAYS`."""
    counted = Counter(failure.at // DAY_S for failure in found)
    last = max(now // DAY_S, max(counted))
    first = max(min(counted), last - MOST_DAYS + 1)
    most = max(1, *(counted[at] for at in counted if at >= first))
    return tuple(
        DayCount(day=day(at * DAY_S), count=counted[at], height=-(-100 * counted[at] // most))
        for at in (first + index for index in range(int(last - first) + 1))
    )


def _failure(ask: PageRequest, home: Home, failure: FailedAttempt) -> GroupFailure:
    first = failure.record.report.first
    after = {None: "", True: "helped", False: "failed again"}[failure.helped]
    return GroupFailure(
        job=failure.job_id,
        name=failure.name,
        href=f"/job/{failure.job_id}{ask.at(home)}",
        attempt=failure.record.attempt,
        at=failure.at,
        culprit=first.words if first else "",
        after=after,
    )
