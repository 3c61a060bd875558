"""How often `holdfast explain` names the right cause, over records whose cause is certain.

    python bench/explain_accuracy.py [JSONL…]      # default: the records under tests/data
    python bench/explain_accuracy.py --smoke       # for CI: fails below the limits

A record is one line of JSON: `text` (the log), `exit_code` (or null), `phrase` (the truth), `also_right` (phrases that
count too), `blame`, `transient` (yes, no or unknown), `not_the_cause` (lines a naive matcher falls for,
for people to read). `files` in place of `text` is a list of logs, one a rank.

Counted: right phrase; right blame; never-retry said of a transient failure; retry said of a hopeless one, and of these
the ones that would go to the same nodes or whose fault moves along (`elsewhere` is right for a fault of a node, a
network or a store, though it is no passing one); Unexplained where the truth is known; a consequence (PeerLost, or a
time-out) named where there was a cause.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import ExitReport, Rerun
from holdfast_testing.labelled_logs import evidence_of_record

OWN = Path(__file__).parent.parent / "tests" / "data"
#: What is to blame stays where it is when the job goes elsewhere.
STAYS_BEHIND = frozenset({"hardware", "platform", "network", "storage"})
#: Phrases that name what followed, unless they are the truth themselves.
SYMPTOMS = frozenset({"PeerLost", "CollectiveTimeout", "KilledBySignal"})


@dataclass(frozen=True)
class Judged:
    """One record beside what the explainer made of it."""

    name: str
    phrase: str
    report: ExitReport
    seconds: float
    right: bool
    blame_right: bool
    transient: str
    hopeless_said_of_transient: bool
    retry_said_of_hopeless: bool
    retry_is_needless: bool
    unexplained: bool
    consequence: bool


def judge(record: dict[str, Any]) -> Judged:
    started = time.perf_counter()
    report = explain(evidence_of_record(record))
    seconds = time.perf_counter() - started
    truth = record["phrase"]
    right = report.phrase == truth or report.phrase in record.get("also_right", ())
    transient = record.get("transient", "unknown")
    retried = report.rerun in (Rerun.NOW, Rerun.LATER, Rerun.ELSEWHERE)
    return Judged(
        name=record.get("id", "?"),
        phrase=truth,
        report=report,
        seconds=seconds,
        right=right,
        blame_right=report.blame == record["blame"],
        transient=transient,
        hopeless_said_of_transient=transient == "yes" and report.rerun == Rerun.NEVER,
        retry_said_of_hopeless=transient == "no" and retried,
        retry_is_needless=transient == "no"
        and retried
        and not (report.rerun == Rerun.ELSEWHERE and record["blame"] in STAYS_BEHIND),
        unexplained=report.phrase == "Unexplained" and truth != "Unexplained",
        consequence=report.phrase in SYMPTOMS and not right,
    )


def read(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]


def table(judged: Sequence[Judged]) -> str:
    total = len(judged)

    def row(name: str, count: int, of: int = total) -> str:
        return f"{name:<48}{count:>6} of {of:<5}{100 * count / max(of, 1):6.1f} %"

    passing, hopeless = (sum(j.transient == word for j in judged) for word in ("yes", "no"))

    times = sorted(j.seconds for j in judged)
    return "\n".join(
        [
            row("right phrase", sum(j.right for j in judged)),
            row("right blame", sum(j.blame_right for j in judged)),
            row("never-retry said of a transient failure", sum(j.hopeless_said_of_transient for j in judged), passing),
            row("retry said of a hopeless failure", sum(j.retry_said_of_hopeless for j in judged), hopeless),
            row("  of these a retry that cannot help", sum(j.retry_is_needless for j in judged), hopeless),
            row("Unexplained where the truth is known", sum(j.unexplained for j in judged)),
            row("consequence named as cause", sum(j.consequence for j in judged)),
            f"median time {1000 * times[total // 2]:.1f} ms, longest {1000 * times[-1]:.1f} ms",
        ]
    )


def miss(judged: Judged) -> str:
    wrong = [
        *([] if judged.right else ["phrase"]),
        *([] if judged.blame_right else ["blame"]),
        *(["never said of transient"] if judged.hopeless_said_of_transient else []),
        *(["retry said of hopeless"] if judged.retry_said_of_hopeless else []),
    ]
    said = judged.report
    return (
        f"{judged.name}: {', '.join(wrong)}: said {said.phrase} ({said.blame}, {said.rerun}), truth {judged.phrase}\n"
        f"    {said.reason[:200]}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, metavar="JSONL")
    parser.add_argument("--smoke", action="store_true", help="exit 1 below 95 %% phrase, 97 %% blame, or a wrong never")
    chosen = parser.parse_args(arguments)
    files = chosen.files or sorted(OWN.glob("explain_*.jsonl"))
    records = read(files)
    if not records:
        print(f"no records in {', '.join(map(str, files)) or OWN}", file=sys.stderr)
        return 2
    explain(AttemptEvidence())  # the rows are loaded and compiled before anything is timed
    judged = [judge(record) for record in records]
    for one in judged:
        if not one.right or not one.blame_right or one.hopeless_said_of_transient or one.retry_said_of_hopeless:
            print(miss(one))
    print(table(judged))
    if not chosen.smoke:
        return 0
    good = (
        sum(j.right for j in judged) >= 0.95 * len(judged)
        and sum(j.blame_right for j in judged) >= 0.97 * len(judged)
        and not any(j.hopeless_said_of_transient for j in judged)
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
