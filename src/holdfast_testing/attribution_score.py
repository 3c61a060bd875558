"""Measures how often the attribution names the true culprit, which the simulation knows.

Attempts that ended in trouble are counted. Attempts that were stopped on request, or before any trouble, are not
counted. A report is right if its culprit (rank or node) had the first trouble of the attempt.
"""

from __future__ import annotations

from collections import Counter

from holdfast.model.decisions import AttemptRecord
from holdfast.model.exit_report import Blame
from holdfast.model.phrases import Phrase
from holdfast_testing.attempt_truth import Truth
from holdfast_testing.witness import Witness

#: Troubles less than this many seconds apart have no order that an owner could know, so a report may blame any of them.
SAME_S = 0.2


class Score:
    """Counts correct reports over many simulations."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        #: Counts the attempts for which blaming the first failure that the owner learnt of would have been right.
        self.naive: Counter[str] = Counter()

    def add(self, witness: Witness) -> None:
        for number, record in witness.records.items():
            truth = witness.truths.get(number)
            if truth is not None:
                self._judge(record, truth)

    def _judge(self, record: AttemptRecord, truth: Truth) -> None:
        before = [ill for ill in truth.ills if truth.stopped_at is None or ill[0] <= truth.stopped_at]
        report = record.report
        if (
            not before
            or report.blame is Blame.OPERATOR
            or report.phrase in (Phrase.SUCCEEDED, Phrase.TIME_LIMIT_REACHED)
        ):
            return
        first_at, what, _, _ = before[0]
        together = [ill for ill in before if ill[0] - first_at <= SAME_S]
        ranks = {rank for ill in together for rank in ill[2]}
        nodes = {ill[3] for ill in together}
        kind = "node" if what in ("power", "agent") else what
        named = {report.first.rank} if report.first is not None else set()
        named |= {other.rank for other in report.also}
        self.asked[kind] += 1
        self.right[kind] += bool(named & ranks or (kind == "node" and nodes & set(report.devices)))
        self.naive[kind] += truth.first_heard in ranks

    def text(self) -> str:
        """Return the score as two lines of text for a person."""
        total = self.asked.total()
        if not total:
            return "attribution: no attempt ended in trouble of its own"
        share = 100.0 * self.right.total() / total
        first = 100.0 * self.naive.total() / total
        each = ", ".join(
            f"{kind} {100.0 * self.right[kind] / asked:.1f} % of {asked}" for kind, asked in sorted(self.asked.items())
        )
        return (
            f"attribution: the true culprit named in {share:.1f} % of {total} troubled attempts ({each});\n"
            f"             the first report that came in would have named it in {first:.1f} %"
        )
