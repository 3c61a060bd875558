"""Totals of jobs that `holdfast prune` may remove: a counter must not fall when a job is removed.

A run with a metrics file adds each job that ended a day ago to a file in the state directory. From then on the job
counts from that file, whether the journal still has the job or not.
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
#: Seconds after a job's end at which its totals are saved. A platform that restarts the job does so earlier.
AFTER_S = 86_400.0
MOST_BYTES = 64 * 1024 * 1024


class Kept(Noun, frozen=True, kw_only=True):
    """The totals that have been saved."""

    #: Ids of saved jobs that the journal still had when this was written.
    jobs: tuple[str, ...] = ()
    #: For each series: its name, the values of its labels, and its total.
    counts: tuple[tuple[str, tuple[str, ...], float], ...] = ()
    #: Names of jobs that are label values, in the order of their first use; `nodes` are those of nodes.
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    #: The last entry of the fault log that is counted.
    faults_seq: int = 0


def kept_in(home: Path) -> Kept:
    """Read the saved totals of this state directory; the result is empty if there are none or they cannot be read."""
    try:
        return json_as(read_file(home / FILE_NAME, MOST_BYTES), Kept, most_bytes=MOST_BYTES)
    except (OSError, Malformed):
        return Kept()


def add_up(kept: Kept, jobs: Iterable[PastJob], into: Samples, names: LabelNames, nodes: LabelNames) -> None:
    """Add the saved totals and those of these jobs to `into`. `jobs`: the oldest first."""
    for series, labels, value in kept.counts:
        into.merge(series, labels, value)
    done = frozenset(kept.jobs)
    count((job for job in jobs if job.view.id not in done), into, names, nodes)


def keep(home: Path, kept: Kept, jobs: Sequence[PastJob], now: float) -> Kept:
    """Add jobs that ended a day before `now` to the saved totals, and write them to the disk.

    `jobs`: the oldest first. Raises OSError if the file cannot be written.
    """
    done = frozenset(kept.jobs)
    old = [job for job in jobs if job.view.ended is not None and job.view.ended < now - AFTER_S]
    fresh = [job for job in old if job.view.id not in done]
    samples, names, nodes = Samples(), LabelNames(kept.names), LabelNames(kept.nodes)
    faults_seq = kept.faults_seq
    with contextlib.suppress(StandingsUnusable):  # `holdfast devices` prints the reason
        faults_seq = count_faults(home, faults_seq, now - AFTER_S, samples, nodes)
    if not fresh and faults_seq == kept.faults_seq:
        return kept
    add_up(kept, fresh, samples, names, nodes)
    counts = tuple((series, labels, value) for series, of in samples.numbers.items() for labels, value in of.items())
    # Only jobs of the journal are listed: jobs that it no longer has cannot be counted twice.
    made = Kept(
        jobs=tuple(job.view.id for job in old),
        counts=counts,
        names=tuple(names.known),
        nodes=tuple(nodes.known),
        faults_seq=faults_seq,
    )
    replace_file(home / FILE_NAME, encode(made))
    return made
