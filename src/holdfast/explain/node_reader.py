"""The node's part of the explanation: the agent reads its workers' logs on the node."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Catalogue
from holdfast.explain.attribution import EvidenceStrength, kind_of
from holdfast.explain.last_lines import last_line
from holdfast.explain.log_reader import Reading, read_worker_logs
from holdfast.explain.log_selection import matcher_of, readings_of
from holdfast.explain.reading_limits import bounded
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.worker_reading import WorkerReading

#: Limit on the workers whose logs were not read but whose last line is kept, if no worker has a cause of its own.
MOST_LAST_LINES = 64


def read_worker(worker: WorkerEvidence, catalogue: Catalogue | None = None) -> WorkerReading:
    """Return the bounded reading of one worker. Never raises: a bug in holdfast is recorded in `bug`."""
    try:
        return bounded(read_worker_logs(worker, matcher_of(catalogue)))
    except Exception as error:  # a bug in reading must not cost the job its report
        return _broken(error)


def read_workers(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> AttemptEvidence:
    """Return the evidence with each worker's reading in place of its logs and its last output. Never raises.

    `readings_of` decides which logs are read whole, and of which only the end, as it does for a report.
    """
    try:
        matcher = matcher_of(catalogue)
        readings = readings_of(evidence, matcher)
        found = any(kind_of(reading, evidence) is EvidenceStrength.OWN for reading in readings)
        workers = [_with_reading(reading.worker, bounded(reading.said)) for reading in _told(readings, found)]
    except Exception as error:  # a bug in reading must not cost the job its report
        workers = [_with_reading(worker, _broken(error)) for worker in evidence.workers]
    return replace(evidence, workers=tuple(workers))


def _told(readings: list[Reading], found: bool) -> list[Reading]:
    """Add the workers' last lines, if no worker has a cause of its own: they may be the only evidence."""
    left = 0 if found else MOST_LAST_LINES
    told = []
    for reading in readings:
        said = reading.said
        if left and said.last_line is None:
            left -= 1
            said = replace(said, last_line=last_line(reading.worker))
        told.append(Reading(reading.worker, said))
    return told


def _with_reading(worker: WorkerEvidence, said: WorkerReading) -> WorkerEvidence:
    ended = worker.exit
    if ended is not None:
        ended = replace(ended, last_words="", last_words_stream="", error_file="")
    return replace(worker, reading=said, exit=ended, log=None, stdout=None, stderr=None)


def _broken(error: Exception) -> WorkerReading:
    return WorkerReading(bug=f"{type(error).__name__}: {str(error)[:300]}")
