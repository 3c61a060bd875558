"""Explains why workers exited. Pure: this package reads no clock, no file and no environment.

A node calls `read_workers(evidence)` to read the logs of its workers. The owner calls `explain(evidence)` to get the
report of an attempt. `first_hand(exit)` decides whether the worker failed by itself or only lost a peer; call it at the
exit, before other workers are stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.explain.causes.plain_success import plain_success
from holdfast.explain.logs.peer_errors import first_hand, is_wordless, speaks_of_peers

__all__ = ["explain", "first_hand", "is_wordless", "read_workers", "speaks_of_peers"]

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.model.evidence import AttemptEvidence
    from holdfast.model.exit_report import ExitReport

# The functions below import the log reader and the rules only when they are called. An owner imports this package long
# before it explains an exit, and most jobs succeed.


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """Return the report of an ended attempt: code, phrase, blame, reason, solution, culprit, collateral.

    Pure and total: the same evidence gives the same report, and the function never raises. If a bug stops the
    explanation, the report has the phrase Unexplained, keeps the original exit, and names the bug in its hint.
    `holdfast.explain.funnel` describes how the report is chosen.

    catalogue: the catalogue of known failures; None: the built-in one.
    """
    if catalogue is None and (report := plain_success(evidence)) is not None:
        return report
    from holdfast.explain.funnel import explain as _explain

    return _explain(evidence, catalogue)


def read_workers(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> AttemptEvidence:
    """Replace each worker's log in the evidence by a reading: the facts found in the log, which a node sends to the
    owner.

    Pure and total. `explain` makes the same report from logs and from readings, unless a reading had to leave out text.
    """
    from holdfast.explain.node_reader import read_workers as _read_workers

    return _read_workers(evidence, catalogue)
