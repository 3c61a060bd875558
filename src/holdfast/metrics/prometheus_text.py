"""Formats all metrics of state directories in Prometheus' text format."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence
from pathlib import Path

from holdfast.metrics import metric_table as m
from holdfast.metrics.current_gauges import checks_now, devices_now, jobs_now
from holdfast.metrics.device_counters import count_devices
from holdfast.metrics.job_totals import LabelNames
from holdfast.metrics.pruned_totals import add_up, keep, kept_in
from holdfast.metrics.samples import Samples
from holdfast.record.job_history import job_history
from holdfast.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(homes: Sequence[Path], now: float, *, keeping: bool = False, unsaved_bytes: int | None = None) -> str:
    """Return the metrics of all jobs in these state directories, in Prometheus' text format.

    `now`: seconds since the epoch.
    `keeping`: save the totals of old jobs, so that they survive the jobs' removal. Otherwise nothing is written to the
        disk.
    `unsaved_bytes`: bytes of the calling run's journal that are not on the disk.

    A damaged journal raises nothing. Then `holdfast_journal_up` is 0.
    """
    samples = Samples()
    samples.set(m.BUILD, 1.0, __version__, platform.python_version())
    samples.set(m.READ_AT, now)
    names, nodes, whole = LabelNames(), LabelNames(), True
    for home in homes:
        seen = job_history(home, most=None)
        whole = whole and not seen.trouble
        kept, oldest_first = kept_in(home), seen.jobs[::-1]
        if keeping and not seen.trouble:
            with contextlib.suppress(OSError):  # ignore a full disk: the journal still has these jobs
                kept = keep(home, kept, oldest_first, now)
        for known, more in ((names, kept.names), (nodes, kept.nodes)):
            for name in more:
                known.label(name)
        add_up(kept, oldest_first, samples, names, nodes)
        jobs_now(home, seen.jobs, samples, names)
        checks_now(seen.jobs, samples)
        devices_now(home, now, samples)
        count_devices(home, kept.faults_seq, samples, nodes)
    samples.set(m.JOURNAL_UP, float(whole))
    if unsaved_bytes is not None:
        samples.set(m.UNSAVED, float(unsaved_bytes))
    return samples.text()
