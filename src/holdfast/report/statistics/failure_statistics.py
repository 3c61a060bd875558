"""Statistics of failures: by group (`holdfast.model.failure_groups`), by week and class, by node or device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from holdfast.model.decisions import AttemptRecord
from holdfast.model.exit_report import Blame
from holdfast.model.failure_groups import group_of
from holdfast.model.noun_base import Noun
from holdfast.record.job_history import PastJob
from holdfast.report.statistics.goodput import ended_well, kept, recoveries

WEEK_S = 7 * 86_400.0
#: 1970-01-05, the first Monday after the epoch, in seconds since the epoch.
_EPOCH_MONDAY_S = 4 * 86_400.0


class FailedAttempt(Noun, frozen=True, kw_only=True):
    """One failed attempt of a job."""

    job_id: str
    name: str
    record: AttemptRecord
    #: Whether the next attempt made progress or succeeded; None: no attempt followed.
    helped: bool | None = None

    @property
    def at(self) -> float:
        return self.record.ended_at

    @property
    def key(self) -> str:
        """The group's key, equal for failures that differ only in numbers, paths, machines or devices."""
        return group_of(self.record.report.fingerprint) or self.record.report.phrase


class FailureGroup(Noun, frozen=True, kw_only=True):
    """The failures of one group, newest first."""

    key: str
    phrase: str
    blame: Blame
    failures: tuple[FailedAttempt, ...]
    #: The number of failures whose culprit was on each node.
    nodes: dict[str, int]
    devices: dict[str, int]

    @property
    def count(self) -> int:
        return len(self.failures)

    @property
    def first_at(self) -> float:
        return self.failures[-1].at

    @property
    def last_at(self) -> float:
        return self.failures[0].at

    @property
    def retried(self) -> int:
        """The number of failures in the group after which another attempt followed."""
        return sum(failure.helped is not None for failure in self.failures)

    @property
    def helped(self) -> int:
        """The number of failures in the group after which the next attempt made progress or succeeded."""
        return sum(failure.helped is True for failure in self.failures)

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(failure.job_id for failure in self.failures))


def failures(jobs: Iterable[PastJob]) -> Iterator[FailedAttempt]:
    """Yield every attempt that failed. An attempt that a person or the platform stopped has not failed."""
    for job in jobs:
        for record, after in zip_longest(job.attempts, job.attempts[1:]):
            if not ended_well(record) and record.report.blame is not Blame.OPERATOR:
                helped = None if after is None else kept(after)
                yield FailedAttempt(job_id=job.view.id, name=job.view.name, record=record, helped=helped)


def groups(found: Iterable[FailedAttempt]) -> tuple[FailureGroup, ...]:
    """Group failures by their common problem; the group with the newest failure comes first."""
    by_key: dict[str, list[FailedAttempt]] = {}
    for failure in found:
        by_key.setdefault(failure.key, []).append(failure)
    made = []
    for key, equal in by_key.items():
        equal.sort(key=lambda failure: failure.at, reverse=True)
        newest = equal[0].record.report
        nodes: dict[str, int] = {}
        devices: dict[str, int] = {}
        for failure in equal:
            report = failure.record.report
            if report.first is not None and report.first.node:
                nodes[report.first.node] = nodes.get(report.first.node, 0) + 1
            for device in report.devices:
                devices[device] = devices.get(device, 0) + 1
        made.append(
            FailureGroup(
                key=key,
                phrase=newest.phrase,
                blame=newest.blame,
                failures=tuple(equal),
                nodes=_most_first(nodes),
                devices=_most_first(devices),
            )
        )
    return tuple(sorted(made, key=lambda group: group.last_at, reverse=True))


def week_of(at: float) -> float:
    """Return Monday, 00:00 UTC, of the week that contains `at`. Both are in seconds since the epoch."""
    return (at - _EPOCH_MONDAY_S) // WEEK_S * WEEK_S + _EPOCH_MONDAY_S


def by_week(found: Iterable[FailedAttempt]) -> dict[str, dict[float, int]]:
    """Count failures: class → week (Monday, 00:00 UTC, in seconds since the epoch) → number.

    The most frequent class comes first.
    """
    counted: dict[str, dict[float, int]] = {}
    for failure in found:
        week = week_of(failure.at)
        of_class = counted.setdefault(failure.record.report.phrase, {})
        of_class[week] = of_class.get(week, 0) + 1
    order = sorted(counted, key=lambda phrase: (-sum(counted[phrase].values()), phrase))
    return {phrase: dict(sorted(counted[phrase].items())) for phrase in order}


def mtbf_s(jobs: Sequence[PastJob]) -> float | None:
    """Return the mean time between failures in seconds: running time ÷ number of failures; None if there was no
    failure."""
    count = sum(1 for _ in failures(jobs))
    ran = sum(record.parts.get("running", 0.0) for job in jobs for record in job.attempts)
    return ran / count if count else None


def mttr_s(jobs: Iterable[PastJob]) -> dict[str, float]:
    """Return class → mean time to recover, in seconds from the first sign of trouble to the next attempt's first
    output.

    The key "" has the mean over all classes. The key is missing if there was no recovery.
    """
    times: dict[str, list[float]] = {}
    for job in jobs:
        for before, (_, seconds) in zip(job.attempts, recoveries(job.attempts), strict=False):
            for key in ("", before.report.phrase):
                times.setdefault(key, []).append(seconds)
    return {phrase: sum(each) / len(each) for phrase, each in times.items()}


def machines(jobs: Iterable[PastJob]) -> frozenset[str]:
    """Return every node that these jobs are known to have used."""
    found: set[str] = set()
    for job in jobs:
        found.add(job.view.host)
        for record in job.attempts:
            found.update(bound.node for bound in record.bound)
            if record.report.first is not None:
                found.add(record.report.first.node)
    return frozenset(found - {""})


def _most_first(counted: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
