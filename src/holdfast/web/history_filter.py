"""Selects the jobs for a page with figures, from all state directories, by the query in the page's address."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.human_format import clock
from holdfast.model.noun_base import Noun
from holdfast.record.job_history import PastJob
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.page_parts import BadRequest, Home, PageRequest

DAY_S = 86_400.0
_MOST_DAYS = 36_500


class HistoryFilter(Noun, frozen=True, kw_only=True):
    """The selected jobs: those that began in the last `days` days (0: any time) and have this name (empty: any
    name)."""

    jobs: tuple[tuple[Home, PastJob], ...]
    days: int
    name: str
    #: All job names, for the form.
    names: tuple[str, ...]
    trouble: tuple[str, ...]

    def of(self) -> tuple[PastJob, ...]:
        return tuple(job for _, job in self.jobs)


def chosen(ask: PageRequest, *, days: int) -> HistoryFilter:
    """Select the jobs that the page's query names.

    `days`: the default if the address has no number of days. Raise `BadRequest` for an invalid number.
    """
    days = days_of(ask.query.get("days", ""), days)
    name = ask.query.get("name", "")
    trouble: list[str] = []
    found: list[tuple[Home, PastJob]] = []
    for home in ask.homes:
        seen = REMEMBERED.past(home.path)
        trouble += [seen.trouble] if seen.trouble else []
        if seen.left_out:
            trouble.append(f"{seen.left_out} older jobs of {home.path} are left out")
        found += [(home, job) for job in seen.jobs]
    since = ask.now - days * DAY_S if days else 0.0
    kept = [(home, job) for home, job in found if job.view.created >= since and name in ("", job.view.name)]
    return HistoryFilter(
        jobs=tuple(kept), days=days, name=name, names=names_of(job for _, job in found), trouble=tuple(trouble)
    )


def day(at: float) -> str:
    """Return the day in UTC, such as `2026-11-23`. Weeks are counted in UTC too."""
    return clock(at, lambda _: 0.0)[:10]


def days_of(text: str, otherwise: int) -> int:
    """Parse the number of days in a page's address. `otherwise`: the result for an empty text."""
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= _MOST_DAYS):
        raise BadRequest(f"days={text}: expected a number from 0 (all) to {_MOST_DAYS}")
    return int(text)


def names_of(jobs: Iterable[PastJob]) -> tuple[str, ...]:
    """Return each job name once, sorted; at most 500."""
    return tuple(sorted({job.view.name for job in jobs})[:500])
