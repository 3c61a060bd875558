"""Totals of jobs that `holdfast prune` may remove: a counter must not fall with them.

Where metrics are written to a file, jobs that ended a day ago are added to a file in the state directory. From then on
they count from there, whether the journal still has them or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.metrics.device_counters import count_faults
from holdfast.metrics.job_totals import LabelNames, count
from holdfast.metrics.samples import Samples
from holdfast.model.codec import encode
from holdfast.model.noun_base import Noun
from holdfast.record.device_standings import StandingsUnusable
from holdfast.record.job_history import PastJob
from holdfast.safe_files import read_file, replace_file
from holdfast.untrusted import Malformed, json_as

FILE_NAME = "totals.json"
#: A job that its platform starts again has begun to run within this time.
AFTER_S = 86_400.0
MOST_BYTES = 64 * 1024 * 1024


class Kept(Noun, frozen=True, kw_only=True):
    """What has been counted already."""

    #: The jobs among them that the journal still had when this was written.
    jobs: tuple[str, ...] = ()
    #: Series, its labels, and what it has come to.
    counts: tuple[tuple[str, tuple[str, ...], float], ...] = ()
    #: The names of jobs that are labels, in the order of their first use; and those of nodes.
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    #: The last entry of the fault log that is counted.
    faults_seq: int = 0


def kept_in(home: Path) -> Kept:
    """The kept totals of this state directory; empty where there are none, or where they cannot be read."""
    try:
        return json_as(read_file(home / FILE_NAME, MOST_BYTES), Kept, most_bytes=MOST_BYTES)
    except (OSError, Malformed):
        return Kept()


def add_up(kept: Kept, jobs: Iterable[PastJob], into: Samples, names: LabelNames, nodes: LabelNames) -> None:
    """All totals: the kept ones, and those of these jobs. `jobs`: the oldest first."""
    for series, labels, value in kept.counts:
        into.merge(series, labels, value)
    done = frozenset(kept.jobs)
    count((job for job in jobs if job.view.id not in done), into, names, nodes)


def keep(home: Path, kept: Kept, jobs: Sequence[PastJob], now: float) -> Kept:
    """Add jobs that ended a day before `now` to the kept totals, on the disk too. `jobs`: the oldest first.

    Raises OSError where that cannot be written.
    """
    done = frozenset(kept.jobs)
    old = [job for job in jobs if job.view.ended is not None and job.view.ended < now - AFTER_S]
    fresh = [job for job in old if job.view.id not in done]
    samples, names, nodes = Samples(), LabelNames(kept.names), LabelNames(kept.nodes)
    faults_seq = kept.faults_seq
    with contextlib.suppress(StandingsUnusable):  # `holdfast devices` says why
        faults_seq = count_faults(home, faults_seq, now - AFTER_S, samples, nodes)
    if not fresh and faults_seq == kept.faults_seq:
        return kept
    add_up(kept, fresh, samples, names, nodes)
    counts = tuple((series, labels, value) for series, of in samples.numbers.items() for labels, value in of.items())
    # Those that the journal has no more cannot be counted twice.
    made = Kept(
        jobs=tuple(job.view.id for job in old),
        counts=counts,
        names=tuple(names.known),
        nodes=tuple(nodes.known),
        faults_seq=faults_seq,
    )
    replace_file(home / FILE_NAME, encode(made))
    return made
