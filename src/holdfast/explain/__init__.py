"""Meaning, pure: what a death means. No clock, no file, no environment is read here.

`explain(evidence)` gives the one report of an attempt; `first_hand(exit)` tells at once, before anything is stopped,
whether an exit speaks for itself or only says that a peer went away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.model.evidence import AttemptEvidence
    from holdfast.model.exits import ExitReport, WorkerExit

# Everything is imported when it is asked for: the supervisor imports this package long before anything has died.


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """The one report of an attempt that has ended: code, phrase, blame, reason, solution, culprit, collateral.

    Pure and total: the same evidence gives the same report, and nothing is raised. Should explaining itself break, the
    report is Unexplained, keeps the original exit and carries the bug as its hint. `catalogue` defaults to the built-in
    rows; the order of belief is the funnel's (see `holdfast.explain.funnel`).
    """
    from holdfast.explain.success import plain_success

    if catalogue is None and (report := plain_success(evidence)) is not None:
        return report
    from holdfast.explain.funnel import explain as _explain

    return _explain(evidence, catalogue)


def first_hand(ended: WorkerExit) -> bool:
    """True when this exit has evidence of its own; False when it only says that a peer went away."""
    from holdfast.explain import peers

    return peers.first_hand(ended)


def is_wordless(ended: WorkerExit) -> bool:
    """True for a status that says nothing, from a program that said nothing."""
    from holdfast.explain import peers

    return peers.is_wordless(ended)
