"""holdfast's own: the pure function behind `holdfast run` and `holdfast explain`, on what a case has."""

import json

from _words import case

from holdfast.explain import explain
from holdfast.model.exit_report import Rerun
from holdfast_testing.labelled_logs import evidence_of_case

RETRY = {
    Rerun.NEVER: "no",
    Rerun.NOW: "now",
    Rerun.LATER: "later",
    Rerun.ELSEWHERE: "elsewhere",
    Rerun.UNKNOWN: "unknown",
}
asked = case()
ranks = {each["rank"] for each in (*asked["logs"], *asked["exits"])}
report = explain(evidence_of_case(asked))
found = [one.rank for one in ([report.first] if report.first else []) + list(report.also) if one.rank in ranks]
print(
    json.dumps(
        {
            "phrase": report.phrase,
            "blame": report.blame,
            "culprits": found,
            "retry": RETRY[report.rerun],
            "reason": report.reason,
        }
    )
)
