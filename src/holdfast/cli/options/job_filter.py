"""The filter options of `holdfast jobs`, as data, and the test whether a job matches them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.model.exit_report import Outcome
from holdfast.model.noun_base import Noun
from holdfast.record.job_views import JobState, JobView

STATES = tuple(dict.fromkeys(each.value for each in (*JobState, *Outcome)))


class JobFilter(Noun, frozen=True, kw_only=True):
    """A filter for `holdfast jobs`. A field that is empty or None matches any job."""

    states: tuple[str, ...] = ()
    #: Keeps jobs that began at this time or later, in seconds since the epoch.
    since: float | None = None
    #: A pattern for the job's name, with `*` and `?` as in the shell.
    name: str = ""
    #: A failure class, or a pattern for classes. Upper and lower case are equal.
    phrase: str = ""
    #: A name, an id or the beginning of one, or a platform's id.
    job: str = ""
    most: int | None = None

    @property
    def is_any(self) -> bool:
        return not (self.states or self.name or self.phrase or self.job) and self.since is None


def job_filter(
    state: Sequence[str], since: str | None, name: str, phrase: str, most: int | None, now: float, job: str = ""
) -> JobFilter:
    """Return the filter for these options of `holdfast jobs`, given as the user typed them.

    `most`: maximum number of jobs. `now`: seconds since the epoch. Raise `BadUsage` for an invalid option.
    """
    states = tuple(word.strip().lower() for each in state for word in each.split(","))
    for word in states:
        if word not in STATES:
            raise _misspelt("--state", word, STATES)
    if phrase and not set(phrase) & set("*?["):
        _known_class(phrase)
    return JobFilter(
        states=states,
        since=None if since is None else parse_moment(since, now, "--since"),
        name=name,
        phrase=phrase.lower(),
        job=job,
        most=most or None,
    )


def filtered_jobs(jobs: Sequence[JobView], wish: JobFilter) -> list[JobView]:
    """Return the matching jobs, in the same order as in `jobs`; at most `wish.most` of them."""
    return [view for view in jobs if _fits(view, wish)][: wish.most]


def parse_moment(text: str, now: float, option: str) -> float:
    """Parse an age (`90s`, `5m`, `1d12h`, `1w`) or a local date and time, to seconds since the epoch.

    `now`: seconds since the epoch. `option`: the option that errors name. Raise `BadUsage` for an invalid text.
    """
    if text[:1].isdigit() and text[-1:].isalpha() and (age_s := amounts.seconds(text)) is not None:
        return now - age_s
    if text in ("today", "yesterday"):
        midnight = datetime.fromtimestamp(now).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return (midnight - timedelta(days=text == "yesterday")).timestamp()
    try:
        return datetime.fromisoformat(_printed(text)).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadUsage(
            f"{option} {text}: expected an age (30m, 12h, 7d) or a date (2026-11-22, 2026-11-22T14:20)",
            hint=f"{option} 1d",
        ) from None


def _printed(text: str) -> str:
    """Remove the space before the zone of a time that holdfast printed (`2026-11-22 14:20:01 +01:00`, `… UTC`)."""
    date, _, rest = text.strip().partition(" ")
    return f"{date} {rest.replace('UTC', '+00:00').replace(' ', '')}" if rest else date


def _fits(view: JobView, wish: JobFilter) -> bool:
    outcome = view.outcome.value if view.outcome else ""
    return (
        (not wish.states or view.state.value in wish.states or outcome in wish.states)
        and (wish.since is None or view.created >= wish.since)
        and (not wish.name or fnmatch.fnmatchcase(view.name, wish.name))
        and (not wish.job or _is_meant(view, wish.job))
        and (not wish.phrase or fnmatch.fnmatchcase((view.phrase or "").lower(), wish.phrase))
    )


def _is_meant(view: JobView, job: str) -> bool:
    of_platform = view.platform.id if view.platform is not None else ""
    return (
        fnmatch.fnmatchcase(view.name, job)
        or view.id.startswith(job)
        or view.id.rpartition("-")[2] == job
        or job in (of_platform, of_platform.partition("_")[0])
    )


def _known_class(phrase: str) -> None:
    """Raise `BadUsage` unless the catalogue has this class or its name is in CamelCase: a component may define its own
    classes.
    """
    from holdfast.catalogue.exit_rows import load

    known = [row.phrase for row in load().rows]
    if phrase.lower() not in {each.lower() for each in known} and not re.fullmatch(r"(?:[A-Z][a-z0-9]+)+", phrase):
        raise _misspelt("--class", phrase, known)


def _misspelt(option: str, word: str, known: Sequence[str]) -> BadUsage:
    import difflib

    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]}?" if near else ""
    some = ", ".join(known) if len(known) < 10 else "a failure class (holdfast exits)"
    return BadUsage(f"{option} {word}: expected {some}{meant}", hint=f"{option} {near[0] if near else known[0]}")
