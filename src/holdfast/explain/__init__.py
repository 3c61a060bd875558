"""Meaning, pure: what a death means. No clock, no file, no environment is read here.

On a node `read_workers(evidence)` reads the logs of its workers. At the owner `explain(evidence)` gives the one report
of an attempt; `first_hand(exit)` tells at once, before anything is stopped, whether an exit speaks for itself or only
says that a peer went away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
    from holdfast.model.exit_report import ExitReport, WorkerExit
    from holdfast.model.worker_reading import WorkerReading

# Everything is imported when it is asked for: the supervisor imports this package long before anything has died.


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """The one report of an attempt that has ended: code, phrase, blame, reason, solution, culprit, collateral.

    Pure and total: the same evidence gives the same report, and nothing is raised. Should explaining itself break, the
    report is Unexplained, keeps the original exit and carries the bug as its hint. `catalogue` defaults to the built-in
    rows; the order of belief is the funnel's (see `holdfast.explain.funnel`).
    """
    from holdfast.explain.plain_success import plain_success

    if catalogue is None and (report := plain_success(evidence)) is not None:
        return report
    from holdfast.explain.funnel import explain as _explain

    return _explain(evidence, catalogue)


def read_worker(worker: WorkerEvidence, catalogue: Catalogue | None = None) -> WorkerReading:
    """What one worker's words say, in at most `model.reading.READING_BYTES`. Pure and total, as `explain` is."""
    from holdfast.explain import node_reader

    return node_reader.read_worker(worker, catalogue)


def read_workers(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> AttemptEvidence:
    """The evidence with readings in place of logs: this is what a node sends about its own workers. Pure and total.

    `explain` gives the same report for both forms, except for lines so long or so many that a reading cuts them.
    """
    from holdfast.explain import node_reader

    return node_reader.read_workers(evidence, catalogue)


def first_hand(ended: WorkerExit) -> bool:
    """True when this exit has evidence of its own; False when it only says that a peer went away."""
    from holdfast.explain import peer_errors

    return peer_errors.first_hand(ended)


def is_wordless(ended: WorkerExit) -> bool:
    """True for a status that says nothing, from a program that said nothing."""
    from holdfast.explain import peer_errors

    return peer_errors.is_wordless(ended)
