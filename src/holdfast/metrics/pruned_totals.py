"""Saves the totals of jobs that `holdfast prune` may remove, because a counter must not decrease when a job is removed.

A run with a metrics file adds each job that ended more than a day ago to a file in the state directory. From then on
the job's totals come from this file, even if the journal still has the job.
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
#: A job's totals are saved this long after its end, in seconds. By then no platform restarts the job.
AFTER_S = 86_400.0
MOST_BYTES = 64 * 1024 * 1024


class Kept(Noun, frozen=True, kw_only=True):
    """The saved totals, as stored in the file."""

    #: Ids of jobs whose totals are saved and which the journal still had at the last save.
    jobs: tuple[str, ...] = ()
    #: For each series: its name, the values of its labels, and its total.
    counts: tuple[tuple[str, tuple[str, ...], float], ...] = ()
    #: Names of jobs that are label values, in the order of their first use. `nodes` has the same for nodes.
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    #: Number of the last entry of the fault log that is included in the totals.
    faults_seq: int = 0


def kept_in(home: Path) -> Kept:
    """Read the saved totals of this state directory. Without a readable file the result is empty."""
    try:
        return json_as(read_file(home / FILE_NAME, MOST_BYTES), Kept, most_bytes=MOST_BYTES)
    except (OSError, Malformed):
        return Kept()


def add_up(kept: Kept, jobs: Iterable[PastJob], into: Samples, names: LabelNames, nodes: LabelNames) -> None:
    """Add the saved totals (`kept`) and the totals of these jobs to `into`.

    `jobs`: the oldest first. `names`, `nodes`: the names of jobs and nodes that may be label values.
    """
    for series, labels, value in kept.counts:
        into.merge(series, labels, value)
    done = frozenset(kept.jobs)
    count((job for job in jobs if job.view.id not in done), into, names, nodes)


def keep(home: Path, kept: Kept, jobs: Sequence[PastJob], now: float) -> Kept:
    """Add the totals of jobs that ended more than a day before `now` to the saved totals (`kept`), and save the result.

    `jobs`: the oldest first. Raises OSError if the file cannot be written.
    """
    done = frozenset(kept.jobs)
    old = [job for job in jobs if job.view.ended is not None and job.view.ended < now - AFTER_S]
    fresh = [job for job in old if job.view.id not in done]
    samples, names, nodes = Samples(), LabelNames(kept.names), LabelNames(kept.nodes)
    faults_seq = kept.faults_seq
    with contextlib.suppress(StandingsUnusable):  # `holdfast devices` reports why the fault log cannot be read
        faults_seq = count_faults(home, faults_seq, now - AFTER_S, samples, nodes)
    if not fresh and faults_seq == kept.faults_seq:
        return kept
    add_up(kept, fresh, samples, names, nodes)
    counts = tuple((series, labels, value) for series, of in samples.numbers.items() for labels, value in of.items())
    # The list needs only jobs that the journal still has: a job that is not in the journal cannot be counted again.
    made = Kept(
        jobs=tuple(job.view.id for job in old),
        counts=counts,
        names=tuple(names.known),
        nodes=tuple(nodes.known),
        faults_seq=faults_seq,
    )
    replace_file(home / FILE_NAME, encode(made))
    return made
