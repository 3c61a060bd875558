"""What one process dates reaches another as an age: clocks that differ change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import fields, replace

from builders import DAY_S, T
from holdfast.decide.gang_view import GangView
from holdfast.decide.phases import Phase
from holdfast.explain import explain, read_workers
from holdfast.model.actions import CollectEvidence
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.events import EvidenceCollected, FaultSeen, HangFound
from holdfast.model.evidence import (
    AttemptEvidence,
    HangEvidence,
    LogExcerpt,
    MemoryKill,
    RankSnapshot,
    WorkerEvidence,
)
from holdfast.model.exit_report import Blame, Evidence, EvidenceKind, ExitReport, Rerun, WorkerExit
from holdfast.model.faults import ActiveFault, Assertion, FaultEvent, Remedy
from holdfast.model.gang_protocol import Ack, Member, MemberState, Report
from holdfast.model.noun_base import MONOTONIC, At, Message, Noun
from holdfast.wire import node_messages
from holdfast.wire.link_interface import Request, Word
from holdfast.wire.message_ages import AS_TOLD, aged, dated, moments_of
from holdfast.wire.node_messages import Moved, Recorded, Told

WRONG_BY = [DAY_S, -DAY_S, 1e6, -1e6]

#: Fields with a moment's name that are no `At`, each with its argument.
NO_MOMENTS = {
    "LogExcerpt.written_at": "a file's date: excerpts never leave their node",
    "Culprit.at": "stands in a report, which reads the same on every node",
    "AttemptRecord.started_at": "stands in a record, which reads the same on every node",
    "AttemptRecord.ended_at": "stands in a record, which reads the same on every node",
    "Member.died_at": "decide/owner.py has it from an age",
    "LogFrom.since": "a user's time, which means the times that a node's own clock gave the lines of its logs",
}


def kinds_sent() -> Iterator[type]:
    """Every type that owner and node send to each other."""
    for told in (*get_args(Request), *get_args(Word)):
        yield from get_args(told) or (told,)
    for kind in vars(node_messages).values():
        if isinstance(kind, type) and issubclass(kind, Message) and kind.__module__ == node_messages.__name__:
            yield kind


def structs_in(told: Any, found: dict[type, inspect.StructType]) -> dict[type, inspect.StructType]:
    if isinstance(told, inspect.StructType):
        if told.cls not in found:
            found[told.cls] = told
            for field in told.fields:
                structs_in(field.type, found)
    else:
        for name in ("type", "item_type", "key_type", "value_type"):
            if isinstance(inner := getattr(told, name, None), inspect.Type):
                structs_in(inner, found)
        for inner in (*getattr(told, "types", ()), *getattr(told, "item_types", ())):
            structs_in(inner, found)
    return found


def of_the_wire() -> dict[type, inspect.StructType]:
    found: dict[type, inspect.StructType] = {}
    for kind in kinds_sent():
        structs_in(inspect.type_info(kind), found)
    return found


def is_float(told: inspect.Type) -> bool:
    if isinstance(told, inspect.UnionType):
        return any(map(is_float, told.types))
    return isinstance(told, inspect.FloatType)


def test_every_moment_on_the_wire_is_marked() -> None:
    kinds = of_the_wire()
    assert len(kinds) > 60
    named = {
        f"{kind.__name__}.{field.name}"
        for kind, told in kinds.items()
        for field in told.fields
        if (field.name in ("at", "since", "until", "moment") or field.name.endswith(("_at", "_since", "_until")))
        and is_float(field.type)
    }
    assert named == set(NO_MOMENTS), "mark it as `At` (model/noun_base.py), or add it here with the argument"


def test_what_is_kept_as_told_is_on_the_wire() -> None:
    assert set(of_the_wire()) >= AS_TOLD


def hang(at: float) -> HangEvidence:
    shot = RankSnapshot(rank=0, pid=7, at=at, last_output_at=at - 40.0)
    return HangEvidence(attempt=1, silent_s=40.0, looks=((shot,), (replace(shot, at=at + 2.0),)), at=at + 2.0)


def test_moments_are_found_wherever_they_stand() -> None:
    there = dated(aged(HangFound(attempt=1, evidence=hang(T)), T + 5.0), T + 5.0 + DAY_S)
    assert there == HangFound(attempt=1, evidence=hang(T + DAY_S))
    assert there.evidence.looks[1][0].last_output_at == T + DAY_S - 40.0


class _Inner(Noun, frozen=True, kw_only=True):
    at: At | None = None
    size: float = 0.0


class _Outer(Noun, frozen=True, kw_only=True):
    places: tuple[str, At, _Inner | None] = ("", 0.0, None)
    by_name: dict[str, _Inner] = {}
    either: _Inner | tuple[_Inner, ...] | str | None = None
    plain: float = 0.0


def test_tuples_dicts_and_unions_are_gone_through() -> None:
    inner = _Inner(at=T, size=3.0)
    outer = _Outer(places=("a", T, inner), by_name={"b": inner}, either=(inner, _Inner()), plain=T)
    age = _Inner(at=10.0, size=3.0)
    assert aged(outer, T + 10.0) == _Outer(places=("a", 10.0, age), by_name={"b": age}, either=(age, _Inner()), plain=T)
    for either in ("words", None, inner):
        assert dated(aged(replace(outer, either=either), T), T) == replace(outer, either=either)


def test_a_set_of_moments_is_refused() -> None:
    class Odd(msgspec.Struct):
        times: list[At] = []

    with pytest.raises(TypeError, match="tuples and dicts"):
        aged(Odd(), T)


def test_a_message_without_moments_is_not_touched() -> None:
    beat = Told(report=Report(node="a", boot=1, attempt=1, stopped=0, sent=T))
    ack = Ack(sent=T)
    assert aged(beat, T) is beat and aged(ack, T) is ack
    assert moments_of(Told) == moments_of(Ack) == ()
    quiet = Moved(view=GangView(phase=Phase.RUNNING, attempt=1, started_at=T))
    assert aged(quiet, T + 1).view.started_at == 1.0
    assert aged(quiet, T + 1).view.members is quiet.view.members
    assert {field.name for field in fields(GangView) if field.name in moments_of(GangView)} == {
        "started_at",
        "members",
        "next_wake",
    }


def test_a_report_of_the_gang_is_dated_by_its_ages_alone() -> None:
    ended = WorkerExit(role="worker", rank=0, node="a", attempt=1, exit_code=1, ended_at=T)
    member = Member(rank=0, state=MemberState.FAILED, exit=ended, age_s=2.0)
    told = Told(report=Report(node="a", boot=1, attempt=1, stopped=0, sent=T + 2, members=(member,)))
    assert dated(aged(told, T + 2), T + DAY_S) == told


def test_a_record_reads_the_same_on_every_node() -> None:
    report = ExitReport(
        code=1,
        phrase="UserException",
        blame=Blame.WORKLOAD,
        rerun=Rerun.NEVER,
        reason="at 12:00:00",
        solution="",
        evidence=(Evidence(kind=EvidenceKind.LOG, text="x", at=T),),
    )
    decision = Decision(kind=DecisionKind.FAIL, reason="it is the program")
    record = Recorded(record=AttemptRecord(attempt=1, started_at=T, ended_at=T, report=report, decision=decision))
    assert aged(record, T + DAY_S) is record


@pytest.mark.parametrize("age", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_an_age_that_is_none_means_now(age: float) -> None:
    seen = FaultSeen(fault=FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=age), remedy=Remedy.WATCH)
    assert dated(seen, T).fault.at == T


# ------------------------------------------------------------------------------------------ the same report


class AheadNode:
    """One machine, whose clock is `ahead` seconds ahead of the owner's."""

    def __init__(self, name: str, ahead: float) -> None:
        self.name = name
        self.ahead = ahead

    def answers(self, asked: CollectEvidence, at: float, **seen: Any) -> EvidenceCollected:
        """What the owner gets (at `at`, on its own clock) when this node has added what it has seen."""
        here = msgspec.json.decode(msgspec.json.encode(aged(asked, at)), type=CollectEvidence)
        known = dated(here, at + self.ahead).evidence
        answer = EvidenceCollected(attempt=1, evidence=read_workers(replace(known, **self.seen(known, seen))))
        back = msgspec.json.decode(msgspec.json.encode(aged(answer, at + self.ahead)), type=EvidenceCollected)
        return dated(back, at)

    def seen(self, known: AttemptEvidence, what: dict[str, Any]) -> dict[str, Any]:
        """Everything that this node dates is on its own clock."""
        kill = MemoryKill(
            source="kernel log", text="Killed process 101", node=self.name, pid=101, at=T + 9.9 + self.ahead
        )
        fault = FaultEvent(device="gpu1", code="79", assertion=Assertion.OCCUR, at=T + 9.5 + self.ahead, node=self.name)
        line = Evidence(
            kind=EvidenceKind.KERNEL, text="NVRM: Xid 79", source="kernel log", at=T + 9.5 + self.ahead, node=self.name
        )
        logs = {
            worker.rank: LogExcerpt(source=f"worker-{worker.rank} stderr", text=_words_of(worker.rank))
            for worker in known.workers
        }
        return {
            "workers": tuple(
                replace(worker, stderr=logs[worker.rank], last_output_at=T + 9.8 + self.ahead)
                for worker in known.workers
            ),
            "memory_kills": (kill,) if what.get("kill") else (),
            "faults": (ActiveFault(event=fault, remedy=Remedy.ISOLATE, ranks=(1,)),) if what.get("fault") else (),
            "kernel": (line,) if what.get("line") else (),
        }


def _words_of(rank: int) -> str:
    if rank == 0:
        return "RuntimeError: Connection closed by peer [10.0.0.2]:4711\n"
    return 'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\nValueError: bad shard 17\n'


def evidence_asked(signal: int | None) -> CollectEvidence:
    """Rank 1 died first; rank 0 followed within 50 ms, on another node."""
    workers = tuple(
        WorkerEvidence(
            rank=rank,
            node=node,
            exit=WorkerExit(
                role="worker",
                rank=rank,
                node=node,
                attempt=1,
                pid=100 + rank,
                exit_code=1 if rank == 0 or signal is None else None,
                signal=signal if rank == 1 else None,
                started_at=T,
                ended_at=T + 10.05 - rank * 0.05,
                order=1,
            ),
        )
        for rank, node in enumerate(("a", "b"))
    )
    return CollectEvidence(attempt=1, evidence=AttemptEvidence(workers=workers, stop_asked_at=T + 10.06))


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("ahead", WRONG_BY)
@pytest.mark.parametrize("seen", [{}, {"kill": True}, {"fault": True}, {"line": True}], ids=lambda seen: "".join(seen))
def test_a_clock_that_is_wrong_changes_no_report(seen: dict[str, Any], ahead: float) -> None:
    signal = 9 if "kill" in seen or "line" in seen else None
    reports = [
        explain(AheadNode("b", clock).answers(evidence_asked(signal), T + 11.0, **seen).evidence)
        for clock in (0.0, ahead)
    ]
    assert reports[0].first is not None and reports[0].first.rank == 1
    assert rounded(msgspec.to_builtins(reports[1])) == rounded(msgspec.to_builtins(reports[0]))


def test_a_clock_that_is_not_translated_would_change_the_report() -> None:
    """The tests above see something: a fault dated a day late did not begin before the death."""
    answer = AheadNode("b", 0.0).answers(evidence_asked(None), T + 11.0, fault=True).evidence
    late = replace(
        answer, faults=tuple(replace(f, event=replace(f.event, at=f.event.at + DAY_S)) for f in answer.faults)
    )
    assert explain(answer).phrase != explain(late).phrase


def test_marking_a_moment_changes_nothing_else() -> None:
    assert At.__metadata__[0].extra is MONOTONIC  # type: ignore[attr-defined]  # Annotated's own attribute
    ended = WorkerExit(role="worker", rank=0, node="a", attempt=1, ended_at=T)
    assert msgspec.json.decode(msgspec.json.encode(ended), type=WorkerExit) == ended
