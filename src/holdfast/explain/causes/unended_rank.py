"""Recognises a rank whose program had ended with an exception, while its process stayed alive and looked like a hang.

The process may be kept alive by a non-daemon thread, an atexit handler, or a destructor that waits for a peer. The
cause is in the rank's last output, not in the place where the process waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.causes.attribution import Attribution, EvidenceStrength, Suspect
from holdfast.explain.logs.log_reader import Reading
from holdfast.model.evidence import AttemptEvidence, HangEvidence, RankSnapshot


def unended(readings: Sequence[Reading], evidence: AttemptEvidence) -> tuple[Attribution, str] | None:
    """Find the first rank that printed its last exception and whose process did not exit.

    Return its attribution, and a clause on what keeps its process alive; None if there is no such rank.
    """
    hang = evidence.hang
    if hang is None:
        return None
    shots = _last(hang)
    found = [
        Suspect(reading, reading.worker.exit, EvidenceStrength.OWN)
        for reading in readings
        if reading.said.own_exception
        and not reading.said.of_peers
        and (shot := shots.get(reading.worker.rank)) is not None
        and shot.left_program
    ]
    if not found:
        return None
    first = min(found, key=lambda suspect: suspect.reading.worker.last_output_at or 0.0)
    collateral = tuple(reading.worker.rank for reading in readings if reading.worker.rank != first.rank)
    kept = _keeper(shots[first.rank])
    return Attribution(first, collateral=collateral), f"its process did not end{f': {kept}' if kept else ''}"


def _last(hang: HangEvidence) -> dict[int, RankSnapshot]:
    """Return each rank's last snapshot with stacks; if it has none, its first snapshot."""
    found: dict[int, RankSnapshot] = {}
    for look in hang.looks:
        for shot in look:
            if shot.rank not in found or any(thread.frames for thread in shot.threads):
                found[shot.rank] = shot
    return found


def _keeper(shot: RankSnapshot) -> str:
    """Return what keeps the process alive: the main thread's place, and another thread that still runs code."""
    main = next(thread for thread in shot.threads if thread.tid == shot.pid)
    place = next((frame for frame in main.frames if ".py:" in frame), (*main.frames, "an exit handler")[0])
    others = [thread for thread in shot.threads if thread is not main and thread.frames]
    still = f", and its thread {others[0].name or others[0].tid} still runs" if others else ""
    return f"it waits in {place}{still}"
