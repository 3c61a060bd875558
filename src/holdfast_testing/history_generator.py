"""Makes a state directory with a long history, for benchmarks of the programs that read it: many jobs, and one of very
many ranks.

`python -m holdfast_testing.history_generator DIR [--jobs 5000] [--ranks 10000]`
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.clock import Clock
from holdfast.model import events as ev
from holdfast.model.check_results import CheckLine, ChecksTaken, CheckState
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import Blame, Culprit, Evidence, EvidenceKind, ExitReport, Outcome, Rerun, WorkerExit
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.model.job_spec import JobSpec, NodeInfo, NodePlan, Role
from holdfast.model.phrases import Phrase
from holdfast.record.journal import Journal

DAY_S = 86_400.0
#: The age of the oldest job in seconds: all jobs began within this time before `now`.
WITHIN_S = 180 * DAY_S
#: The number of ranks that each node has.
A_NODE = 8
_NAMES = 40
_NODES = 200
_ATTEMPTS_OF_LARGEST = 3
# Columns: failure class, blame, exception, relative frequency among failures, fraction of these failures that is on one
# bad node.
_CAUSES = (
    (Phrase.USER_EXCEPTION.value, Blame.WORKLOAD, "ValueError", 40, 0.0),
    (Phrase.ILLEGAL_MEMORY_ACCESS.value, Blame.WORKLOAD, "RuntimeError", 15, 0.0),
    (Phrase.ACCELERATOR_LOST.value, Blame.HARDWARE, "", 10, 0.8),
    (Phrase.COLLECTIVE_TIMEOUT.value, Blame.NETWORK, "DistBackendError", 12, 0.3),
    (Phrase.HUNG_WORKER.value, Blame.UNKNOWN, "", 8, 0.1),
    (Phrase.STORAGE_IO_ERROR.value, Blame.STORAGE, "OSError", 8, 0.0),
    (Phrase.PREEMPTED.value, Blame.PLATFORM, "", 7, 0.0),
)
_CHECKS = ("disk", "memory", "clock", "driver")


def make_history(home: Path, *, jobs: int = 5000, ranks: int = 10_000, now: float, seed: int = 1) -> str:
    """Fill the journal in `home`, and return the id of the newest job, which has `ranks` ranks.

    The result is the same for equal arguments. `now`: seconds since the epoch. Raises `RuntimeError` if the journal
    does not accept all of it.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    dice = random.Random(seed)
    journal = Journal.open(home)
    for number in range(jobs - 1):  # the newest job, with many ranks, is added below
        began = now - WITHIN_S * (jobs - number) / (jobs + 1)
        _one(journal, dice, f"h{number:06}", began)
    largest = "h-largest"
    _large(journal, dice, largest, ranks, now - 7200.0)
    saved, trouble = journal.saved, journal.trouble
    journal.close()
    if not saved:
        raise RuntimeError(trouble or "the journal has not taken all of it")
    return largest


def _one(journal: Journal, dice: random.Random, job_id: str, began: float) -> None:
    name = f"train-{min(int(dice.expovariate(0.15)), _NAMES - 1):02}"
    node = f"gpu-{dice.randrange(_NODES):03}"
    journal.create_job(job_id, _spec(name, A_NODE), now=began, host=node, pid=1)
    failures = min(int(dice.expovariate(0.8)), 6)
    gives_up = dice.random() < 0.25 and failures > 0
    records, at = [], began
    for attempt in range(1, failures + (not gives_up) + 1):
        last = attempt == failures + (not gives_up)
        fails = attempt <= failures
        kind = DecisionKind.SUCCEED if not fails else DecisionKind.FAIL if last else DecisionKind.RESTART
        record = _record(dice, attempt, at, node, kind)
        journal.record_attempt(job_id, record)
        records.append(record)
        at = record.ended_at
    outcome = Outcome.FAILED if gives_up else Outcome.SUCCEEDED
    report = JobReport(job_id=job_id, name=name, outcome=outcome, report=records[-1].report, attempts=tuple(records))
    journal.finish(report, now=at)


def _record(
    dice: random.Random, attempt: int, at: float, node: str, kind: DecisionKind, rank: int | None = None
) -> AttemptRecord:
    ran = dice.expovariate(1 / 7200.0)
    parts = {
        "backoff": 1.0 if attempt > 1 else 0.0,
        "checking": dice.uniform(0.1, 5.0),
        "starting": dice.uniform(5.0, 90.0),
        "running": ran,
        "detection": dice.uniform(0.01, 2.0),
        "draining": dice.uniform(0.1, 20.0),
        "decision": dice.uniform(0.01, 0.5),
        "first_output": dice.uniform(1.0, 60.0),
    }
    report = _succeeded(attempt) if kind is DecisionKind.SUCCEED else _failed(dice, attempt, at + ran, node, rank)
    checks = tuple(CheckLine(name=name, state="passed", tries=1, took_s=dice.uniform(0.0, 1.0)) for name in _CHECKS)
    return AttemptRecord(
        attempt=attempt,
        started_at=at,
        ended_at=at + sum(parts.values()) - parts["first_output"],
        report=report,
        decision=Decision(kind=kind, reason="made for a benchmark", charged=report.blame is Blame.WORKLOAD),
        parts=parts,
        progressed=dice.random() < 0.7,
        step=int(ran / 3),
        checks=ChecksTaken(state=CheckState.PASS, checks=checks),
    )


def _succeeded(attempt: int) -> ExitReport:
    return ExitReport(
        code=0,
        phrase=Phrase.SUCCEEDED,
        blame=Blame.UNKNOWN,
        rerun=Rerun.UNKNOWN,
        reason="all workers finished with status 0",
        solution="",
        attempt=attempt,
    )


def _failed(dice: random.Random, attempt: int, at: float, node: str, rank: int | None = None) -> ExitReport:
    phrase, blame, exception, _, bad = dice.choices(_CAUSES, weights=[cause[3] for cause in _CAUSES])[0]
    rank = dice.randrange(A_NODE) if rank is None else rank
    node = "gpu-013" if dice.random() < bad else node
    frame = f"train.py:{dice.randrange(12) * 10}"
    told = Evidence(
        kind=EvidenceKind.LOG, text=f"{exception or phrase} at {frame}", source=f"worker-{rank} stderr", at=at
    )
    return ExitReport(
        code=1,
        phrase=phrase,
        blame=blame,
        rerun=Rerun.NOW,
        reason=f"rank {rank} on {node}: {exception or phrase}",
        solution="Read the worker's log.",
        attempt=attempt,
        first=Culprit(role="worker", rank=rank, node=node, pid=1000 + rank, at=at),
        fingerprint=f"{phrase}|{exception}|{frame if exception else ''}",
        exception=exception,
        evidence=(told,),
        collateral=tuple(other for other in range(A_NODE) if other != rank),
        devices=(f"{node}/gpu{rank % A_NODE}",) if blame is Blame.HARDWARE else (),
        confidence=dice.choice((0.5, 0.9, 1.0)),
    )


def _spec(name: str, ranks: int) -> JobSpec:
    nodes = -(-ranks // A_NODE)
    role = Role(name="worker", count=ranks, command=("python", "train.py"))
    return JobSpec(name=name, roles=(role,), nodes=NodePlan(least=nodes, most=nodes))


def _large(journal: Journal, dice: random.Random, job_id: str, ranks: int, began: float) -> None:
    """Add a job of many ranks with all its events; its last attempt has not ended."""
    spec = _spec("largest", ranks)
    journal.create_job(job_id, spec, now=began, host="gpu-000", pid=1)
    names = [f"gpu-{number:04}" for number in range(spec.nodes.most)]
    nodes = tuple(NodeInfo(name=name, slots=A_NODE) for name in names)
    journal.append(job_id, began, ev.JobSubmitted(job_id=job_id, spec=spec, nodes=nodes))
    at = began
    for attempt in range(1, _ATTEMPTS_OF_LARGEST + 1):
        journal.append(job_id, at, ev.ChecksFinished(attempt=attempt, round=1, state=CheckState.PASS))
        for state, after_s in ((MemberState.PREPARED, 20.0), (MemberState.UP, 30.0)):
            for report in _reports(names, ranks, attempt, state):
                journal.append(job_id, at + after_s, ev.AgentReported(report=report))
        if attempt == _ATTEMPTS_OF_LARGEST:
            return
        record = _record(dice, attempt, at, names[0], DecisionKind.RESTART, dice.randrange(ranks))
        for report in _reports(names, ranks, attempt, MemberState.STOPPED):
            journal.append(job_id, record.ended_at - 2.0, ev.AgentReported(report=report))
        evidence = AttemptEvidence(attempt=attempt, workers=tuple(_ends(names, ranks, record)))
        journal.append(job_id, record.ended_at - 1.0, ev.EvidenceCollected(attempt=attempt, evidence=evidence))
        journal.record_attempt(job_id, record)
        at = record.ended_at


def _reports(names: list[str], ranks: int, attempt: int, state: MemberState) -> Iterator[Report]:
    for number, name in enumerate(names):
        own = range(number * A_NODE, min((number + 1) * A_NODE, ranks))
        members = tuple(Member(rank=rank, state=state) for rank in own)
        yield Report(node=name, boot=1, attempt=attempt, stopped=attempt - 1, sent=1.0, members=members)


def _ends(names: list[str], ranks: int, record: AttemptRecord) -> Iterator[WorkerEvidence]:
    """Yield how each rank ended: the culprit failed, and the others were stopped after it.

    `names`: the nodes' names.
    """
    first = record.report.first
    for rank in range(ranks):
        own = first is not None and rank == first.rank
        ended = WorkerExit(
            role="worker",
            rank=rank,
            node=names[rank // A_NODE],
            attempt=record.attempt,
            pid=1000 + rank % A_NODE,
            local_rank=rank % A_NODE,
            exit_code=1 if own else None,
            signal=None if own else 15,
            started_at=record.started_at + 30.0,
            ended_at=record.ended_at - (5.0 if own else 3.0),
            after_stop=not own,
        )
        yield WorkerEvidence(rank=rank, node=names[rank // A_NODE], exit=ended, last_step=record.step)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="holdfast_testing.history_generator", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--ranks", type=int, default=10_000)
    given = parser.parse_args(words)
    largest = make_history(given.directory, jobs=given.jobs, ranks=given.ranks, now=Clock().now())
    sys.stdout.write(f"{given.directory}: {given.jobs} jobs, and {largest} with {given.ranks} ranks\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
