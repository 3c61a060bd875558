"""The node's side of explaining: the agent reads its workers' logs where they are."""

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

#: The last line is kept for at most so many workers that were not read, where none died of its own cause.
MOST_LAST_LINES = 64


def read_worker(worker: WorkerEvidence, catalogue: Catalogue | None = None) -> WorkerReading:
    """The bounded reading of one worker. Raises nothing: an error of holdfast on the way is kept in `bug`."""
    try:
        return bounded(read_worker_logs(worker, matcher_of(catalogue)))
    except Exception as error:  # a bug in reading must not cost the job its report
        return _broken(error)


def read_workers(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> AttemptEvidence:
    """The evidence with each worker's reading in place of its logs and its last words.

    Which workers are read whole, and of which the end is read, is decided as for a report: in the order of their
    deaths. Raises nothing.
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
    """The last lines of the workers: where no worker died of its own cause, they may be the only evidence."""
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
