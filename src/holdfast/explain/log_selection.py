"""Chooses which logs of an attempt to read, and how much of each.

A node does this for its workers; the owner does it for logs that no node has read.
"""

from __future__ import annotations

import functools

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Catalogue
from holdfast.explain.causes.attribution import EvidenceStrength, after_stop, cut_short, kind_of
from holdfast.explain.logs.log_reader import Reading, glance_worker_logs, read_worker_logs
from holdfast.explain.logs.peer_errors import first_hand
from holdfast.explain.logs.row_matcher import Matcher, built_in
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence

#: Number of workers whose logs are always read completely: the workers that exited first.
MOST_WHOLE = 2
#: Number of workers whose logs are read completely if the times of the exits are unknown.
MOST_UNDATED = 64
#: Number of other workers whose log ends are read, if the completely read logs show no cause.
MOST_TAILS = 28
TAIL_CHARS = 4096


@functools.lru_cache(maxsize=4)
def _matcher(catalogue: Catalogue) -> Matcher:
    return Matcher(catalogue)


def matcher_of(catalogue: Catalogue | None) -> Matcher:
    """Return the matcher of a catalogue, which is made once. `catalogue` None: the built-in catalogue."""
    return built_in() if catalogue is None else _matcher(catalogue)


def readings_of(evidence: AttemptEvidence, matcher: Matcher) -> list[Reading]:
    """Return the log readings of all workers. If a worker's node has sent a reading, use that; otherwise read the
    worker's logs now.

    Read them in the order of the exits, until a worker failed by itself: later exits cannot be the culprit. Workers
    that holdfast stopped, or that exited with status 0, are no suspects. If many workers only blame each other, read
    the ends of a limited number of logs.
    """
    unread = [worker for worker in evidence.workers if worker.reading is None]
    suspects = [worker for worker in unread if _may_tell(worker, evidence)]
    if not suspects and evidence.stop is None and evidence.hang is None:
        suspects = unread
    known: dict[int, Reading] = {}
    found = False
    tails = 0
    for place, worker in enumerate(sorted(suspects, key=_death)):
        ended = worker.exit
        undated = ended is not None and ended.ended_at is None and place < MOST_UNDATED
        if place < MOST_WHOLE or undated or (ended is None and evidence.hang is None):
            reading = Reading(worker, read_worker_logs(worker, matcher))
        elif found or ended is None:
            continue
        elif first_hand(ended) or cut_short(worker, evidence):
            reading = Reading(worker, read_worker_logs(worker, matcher))
        elif tails < MOST_TAILS:
            tails += 1
            reading = Reading(worker, read_worker_logs(_end_of(worker), matcher))
            if kind_of(reading, evidence) is EvidenceStrength.OWN:
                reading = Reading(worker, read_worker_logs(worker, matcher))
        else:
            continue
        known[id(worker)] = reading
        found = found or kind_of(reading, evidence) is EvidenceStrength.OWN
    return [
        known.get(id(worker)) or Reading(worker, worker.reading or glance_worker_logs(worker))
        for worker in evidence.workers
    ]


def _death(worker: WorkerEvidence) -> tuple[float, int]:
    ended = worker.exit
    return (0.0, 0) if ended is None else (ended.ended_at or 0.0, ended.order)


def _end_of(worker: WorkerEvidence) -> WorkerEvidence:
    def end(excerpt: LogExcerpt | None) -> LogExcerpt | None:
        if excerpt is None:
            return None
        first = excerpt.first_line + excerpt.text[:-TAIL_CHARS].count("\n")
        text = excerpt.text[-TAIL_CHARS:]
        return replace(excerpt, text=text, cuttings=(), settled=0, first_line=first, cutting_lines=())

    return replace(worker, log=end(worker.log), stdout=end(worker.stdout), stderr=end(worker.stderr))


def _may_tell(worker: WorkerEvidence, evidence: AttemptEvidence) -> bool:
    ended = worker.exit
    return ended is None or not (ended.ok or after_stop(ended, evidence)) or cut_short(worker, evidence)
