"""Names the ranks that holdfast killed because they did not exit within the grace period, and advises the user."""

from __future__ import annotations

from holdfast.explain.text import sentences
from holdfast.model.evidence import AttemptEvidence, StopSource
from holdfast.model.exit_report import signal_name

_SIGTERM = 15


def outstayed(evidence: AttemptEvidence) -> tuple[int, ...]:
    """Return the ranks that were still alive at the end of the grace period; empty if the stop had no grace period."""
    asked, grace_s = evidence.stop_asked_at, evidence.grace_s
    if asked is None or not grace_s:
        return ()
    return tuple(
        worker.rank
        for worker in evidence.workers
        if (ended := worker.exit) is not None
        and ended.after_stop
        and ended.signal is not None
        and signal_name(ended.signal) == "SIGKILL"
        and ended.ended_at is not None
        and ended.ended_at - asked >= grace_s
    )


def fate(ranks: tuple[int, ...], evidence: AttemptEvidence) -> str:
    """Return a clause about these ranks, such as `ranks 0 and 2 had not left 30 s after SIGTERM and were killed`."""
    were = "was" if len(ranks) == 1 else "were"
    stop = evidence.stop
    asked = stop.signal if stop is not None and stop.source is StopSource.SIGNAL and stop.signal else _SIGTERM
    first = signal_name(asked) if asked == _SIGTERM else f"{signal_name(asked)} (SIGTERM came at half of that time)"
    grace = sentences.seconds(evidence.grace_s or 0.0)
    return f"{sentences.ranks(ranks)} had not left {grace} after {first} and {were} killed"


def advice(evidence: AttemptEvidence) -> str:
    """Return advice about the grace period; empty if every rank exited in time."""
    ranks = outstayed(evidence)
    if not ranks or evidence.grace_s is None:
        return ""
    told = fate(ranks, evidence)
    return (
        f"{told[0].upper()}{told[1:]}, and everything after it waited for that: save and leave on SIGTERM"
        " (signal.signal(signal.SIGTERM, …); holdfast.on_drain tells of a stop for a fault before the signal), and set"
        " --grace to what a save takes."
    )
