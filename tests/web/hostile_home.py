"""A state directory in which every text that comes from others is one that looks for a way out of its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.check_results import CheckLine, ChecksTaken, CheckState
from holdfast.model.codec import encode
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.events import Event, HangFound, JobSubmitted
from holdfast.model.evidence import HangEvidence, RankSnapshot, ThreadState
from holdfast.model.exit_report import Culprit, Evidence, EvidenceKind, Outcome
from holdfast.model.faults import Assertion, FaultEvent
from holdfast.model.log_time_format import head, record
from holdfast.node.devices.fault_log import FaultLog, Release
from holdfast.record.device_standings import RowKind, Standings
from holdfast.record.job_directory import JobPlace, claim
from holdfast.record.journal import Journal
from swimlane_story import BEGAN, story

#: The text that stands in the place of this name.
Word = Callable[[str], str]
ENDED = "20260101-0000-host"
HOME_AT = BEGAN + 300


def hostile_home(home: Path, word: Word, log: bytes) -> JobPlace:
    """A job that has failed after a hang, and one that runs; its lock is held until the caller lets go of it."""
    place = claim(home, name=word("name"), now=HOME_AT - 5)
    journal = Journal.open(home)
    events, records = _two_attempts(word)
    _, submitted = events[0]
    assert isinstance(submitted, JobSubmitted)
    journal.create_job(ENDED, submitted.spec, now=BEGAN, host=word("host"), pid=1)
    for at, event in events:
        journal.append(ENDED, at, event)
    for each in records:
        journal.record_attempt(ENDED, each)
    journal.finish(hostile_report(word), now=BEGAN + 201)
    running, _ = story(nodes=2, each=2, name=word("name"), node_name=_braced(word("node")) + "{}")
    journal.create_job(place.job_id, submitted.spec, now=HOME_AT - 5, host=word("host"), pid=1)
    for at, event in running[:5]:
        journal.append(place.job_id, at + HOME_AT - BEGAN - 5, event)
    assert journal.saved, journal.trouble
    journal.close()
    for attempt in (1, 2):
        for rank in (0, 1):
            folder = home / "jobs" / ENDED / f"attempt-{attempt}" / f"{_file_name(word('role'))}-{rank}"
            folder.mkdir(parents=True)
            for stream in ("stdout", "stderr"):
                (folder / f"{stream}.log").write_bytes(log)
                inode = (folder / f"{stream}.log").stat().st_ino
                times = head(inode) + record(0, BEGAN + 100 * (attempt - 1) + 30)
                (folder / f"{stream}.times").write_bytes(times)
    _devices(home, word)
    return place


def hostile_report(word: Word) -> JobReport:
    """How the job has failed."""
    _, records = _two_attempts(word)
    return JobReport(
        job_id=ENDED,
        name=word("name"),
        outcome=Outcome.FAILED,
        report=records[-1].report,
        attempts=tuple(records),
    )


def _two_attempts(word: Word) -> tuple[list[tuple[float, Event]], list[AttemptRecord]]:
    node = _braced(word("node")) + "{}"
    events, records = story(nodes=2, each=2, attempts=2, name=word("name"), node_name=node)
    looks = (tuple(_snapshot(word, rank) for rank in range(4)),)
    hang = HangEvidence(attempt=2, silent_s=30.0, looks=looks, culprits=(1,), why=word("hang"), at=BEGAN + 150)
    events.append((BEGAN + 165, HangFound(attempt=2, evidence=hang)))
    return events, [_worse(word, each) for each in records]


def _worse(word: Word, each: AttemptRecord) -> AttemptRecord:
    evidence = tuple(
        Evidence(kind=kind, text=word("evidence"), source=source, at=BEGAN, node=word("node"))
        for kind, source in (
            (EvidenceKind.EXCEPTION, f"{_file_name(word('role'))}-1 stderr:1"),
            (EvidenceKind.LOG, word("source")),
        )
    )
    report = replace(
        each.report,
        phrase=word("phrase"),
        reason=word("reason"),
        solution=word("solution"),
        exception=word("exception"),
        fingerprint=word("fingerprint"),
        hint=word("hint"),
        trigger=word("trigger"),
        devices=(word("device"),),
        evidence=evidence,
        first=Culprit(role=word("role"), rank=1, node=word("node"), at=each.ended_at - 6, address=word("address")),
        also=(Culprit(role=word("role"), rank=2, node=word("node")),),
    )
    lines = tuple(CheckLine(name=word(name), state=state, message=word("said"), tries=1, took_s=1.0)
                  for name, state in (("check", "failed"), ("other check", "passed with a warning")))  # fmt: skip
    return replace(
        each,
        report=report,
        decision=replace(each.decision, reason=word("decision"), avoid=(word("node"),)),
        checks=ChecksTaken(state=CheckState.FAIL, checks=lines, by_node={word("node"): lines}),
    )


def _snapshot(word: Word, rank: int) -> RankSnapshot:
    thread = ThreadState(
        tid=rank,
        name=word("thread"),
        state=word("state"),
        waits_in=word("waits"),
        frames=(f"{word('frame')} {rank % 2}", word("frame")) if rank else (),
    )
    return RankSnapshot(rank=rank, pid=rank + 1, at=BEGAN + 150, threads=(thread,), stack_source=word("stack source"))


def _devices(home: Path, word: Word) -> None:
    with FaultLog(home, default_policy(), HOME_AT, writable=True) as log:
        for number in range(3):
            log.report(
                FaultEvent(
                    device="gpu1",
                    code="48",
                    assertion=Assertion.ONCE,
                    at=HOME_AT - 10 + number,
                    node=word("node"),
                    text=word("text"),
                    source=word("source"),
                ),
                HOME_AT,
            )
    store = Standings.for_writing(home)
    release = Release(device=word("device"), who=word("who"), reason=word("reason"), was=word("was"))
    store.append(HOME_AT, RowKind.RELEASE, [encode(release)])
    store.close()


def _braced(text: str) -> str:
    """As a format: without places to fill."""
    return text.replace("{", "{{").replace("}", "}}")


def _file_name(text: str) -> str:
    """As a directory may be named."""
    return text.replace("/", "|").replace("\0", "|").encode()[:200].decode(errors="ignore")
