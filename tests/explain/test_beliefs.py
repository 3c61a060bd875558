"""The order of belief: one table, that the page prints and the funnel follows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from builders import T
from holdfast.explain import explain
from holdfast.explain.explanation_rules import OTHER_RULES, order_of_belief
from holdfast.model.evidence import (
    AttemptEvidence,
    CheckFailure,
    HangEvidence,
    LeftBehind,
    MemoryKill,
    StopRequest,
    WorkerEvidence,
)
from holdfast.model.exit_report import Evidence, EvidenceKind, OtherRule, WorkerExit
from holdfast.model.faults import ActiveFault, Assertion, FaultEvent, Remedy
from places import DOCS

EXPLAINING_PAGE = DOCS / "internals" / "explaining.md"
XID_79 = FaultEvent(device="gpu0", code="Xid 79", assertion=Assertion.OCCUR, at=T - 1, node="a")
KILLED_EXIT = WorkerExit(role="worker", rank=0, node="a", attempt=1, pid=7, signal=9, ended_at=T, order=1)

#: What is known, the strongest first, and the phrase that it alone or with all below it gives.
BELIEFS: list[tuple[str, dict[str, Any]]] = [
    ("StoppedByOperator", {"stop": StopRequest(reason="enough", at=T - 2)}),
    ("KilledByDiskCleaner", {"pai_errors": (
        Evidence(kind=EvidenceKind.LOG, text='1 ERROR ACTION "KILL"', source="disk"),
        Evidence(kind=EvidenceKind.LOG, text='1 ERROR REASON "full"', source="disk"),
    )}),
    ("CheckFailed", {"check": CheckFailure(check="disk", message="full")}),
    ("AcceleratorLost", {"faults": (ActiveFault(event=XID_79, remedy=Remedy.RESET_NOW),)}),
    ("HostOutOfMemoryKilled", {"memory_kills": (MemoryKill(source="cgroup", text="oom_kill 1", rank=0),)}),
    ("HungWorker", {"hang": HangEvidence(attempt=1, silent_s=60.0, at=T - 1)}),
    ("KilledBySignal", {"workers": (WorkerEvidence(rank=0, node="a", exit=KILLED_EXIT),)}),
    ("NodeFailed", {"lost": (LeftBehind(node="b", silent_s=9.0),)}),
    ("GangStartTimeout", {"deadline": "start"}),
    ("Unexplained", {}),
]  # fmt: skip


def test_the_page_prints_the_table() -> None:
    assert order_of_belief() in EXPLAINING_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", range(len(BELIEFS)))
def test_what_stands_first_is_believed_before_all_that_comes_later(place: int) -> None:
    evidence = AttemptEvidence(workers=(WorkerEvidence(rank=0, node="a"),))
    for _, known in reversed(BELIEFS[place:]):
        evidence = replace(evidence, **known)
    if place <= 4:
        evidence = replace(evidence, workers=(WorkerEvidence(rank=0, node="a", exit=KILLED_EXIT),))
    assert explain(evidence).phrase == BELIEFS[place][0]


def test_every_rule_has_its_meaning() -> None:
    assert set(OTHER_RULES) == set(OtherRule)
