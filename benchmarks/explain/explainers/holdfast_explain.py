"""holdfast's own: the pure function behind `holdfast run` and `holdfast explain`, on what a case has."""

import io
import json
from collections import defaultdict

from _words import case
from msgspec.structs import replace

from holdfast.explain import explain
from holdfast.explain.matcher import built_in
from holdfast.loop.explain import read_log
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exits import Rerun, WorkerExit


def excerpt(source: str, text: str) -> LogExcerpt:
    """What `holdfast explain` keeps of a log of any size."""
    return replace(read_log("-", built_in(), io.BytesIO(text.encode())), source=source)


RETRY = {
    Rerun.NEVER: "no",
    Rerun.NOW: "now",
    Rerun.LATER: "later",
    Rerun.ELSEWHERE: "elsewhere",
    Rerun.UNKNOWN: "unknown",
}
asked = case()
texts: dict[int, str] = defaultdict(str)
for log in asked["logs"]:
    texts[log["rank"]] += log["text"]
ends = {one["rank"]: one for one in asked["exits"]}
ranks = sorted({*texts, *ends})
workers = []
for rank in ranks:
    ended = None
    if one := ends.get(rank):
        ended = WorkerExit(
            role="worker",
            rank=rank,
            node="",
            attempt=1,
            exit_code=one["code"],
            signal=one["signal"],
            after_stop=bool(one.get("by_launcher")),
        )
    workers.append(WorkerEvidence(rank=rank, log=excerpt(f"rank-{rank}.log", texts[rank]), exit=ended))
launcher = len(ranks)
"""As `holdfast explain rank*.log job.log` takes it: one log more."""
if asked["launcher"]:
    workers.append(WorkerEvidence(rank=launcher, log=excerpt("launcher.log", asked["launcher"])))
if asked["kernel"]:
    workers.append(WorkerEvidence(rank=launcher + 1, log=excerpt("dmesg", "\n".join(asked["kernel"]))))
report = explain(AttemptEvidence(workers=tuple(workers)))
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
