"""What several nodes answer becomes one answer, and a node that does not answer is named."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders import T, job_spec
from holdfast.decide.queries.answer_collection import EVIDENCE_S, AnswerCollection, parts
from holdfast.explain import explain, read_workers
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunChecks
from holdfast.model.check_results import CheckLine, ChecksTaken, CheckState
from holdfast.model.evidence import (
    AttemptEvidence,
    CheckFailure,
    HangEvidence,
    HostFacts,
    LeftBehind,
    LogExcerpt,
    MemoryKill,
    RankSnapshot,
    ThreadState,
    WorkerEvidence,
)
from holdfast.model.exit_report import Evidence, EvidenceKind, WorkerExit
from holdfast.model.faults import ActiveFault, Assertion, FaultEvent, Remedy
from holdfast.model.gang_protocol import Meeting, Report
from holdfast.model.job_spec import NodePlan
from holdfast.owner.node_queries import NodeQueries
from holdfast.reactor import Reactor
from holdfast.wire.in_process_link import InProcess

NODES = ("gpu-1", "gpu-2", "gpu-3")
ON_THREE = job_spec(4, nodes=NodePlan(least=3, most=3))
CHECKS = RunChecks(
    attempt=2, round=1, nodes=NODES, checks=None, deadline_s=100.0, meet_on="gpu-2", cause="agent-reported:17"
)


def asked_for_checks() -> AnswerCollection:
    roundup = AnswerCollection()
    roundup.ask(CHECKS, T)
    return roundup


def checked(state: CheckState = CheckState.PASS, **more: Any) -> ev.ChecksFinished:
    line = CheckLine(name="disk", state="passed" if state is CheckState.PASS else "failed", tries=1, took_s=0.1)
    fields: dict[str, Any] = {"attempt": 2, "round": 1, "taken": ChecksTaken(state=state, checks=(line,))}
    return ev.ChecksFinished(state=state, **(fields | more))


def test_all_nodes_have_passed() -> None:
    roundup = asked_for_checks()
    met = Meeting(address="10.0.0.2", port=4711)
    assert roundup.hear("gpu-1", checked(), T + 1) is None
    assert roundup.hear("gpu-2", checked(meeting=met), T + 1) is None
    whole = roundup.hear("gpu-3", checked(), T + 1)
    assert isinstance(whole, ev.ChecksFinished)
    assert (whole.state, whole.failure, whole.avoid) == (CheckState.PASS, None, ())
    assert (whole.meeting, whole.cause) == (met, "agent-reported:17")
    one = checked().taken
    assert one is not None and whole.taken == replace(one, by_node=dict.fromkeys(NODES, one.checks))
    assert roundup.next_wake() is None


def test_a_meeting_counts_from_the_node_of_rank_0_alone() -> None:
    roundup = asked_for_checks()
    stray = Meeting(address="10.0.0.1", port=1)
    answers = [roundup.hear(node, checked(meeting=stray if node != "gpu-2" else None), T) for node in NODES]
    assert isinstance(answers[-1], ev.ChecksFinished) and answers[-1].meeting is None


def test_nodes_without_checks_are_disabled() -> None:
    roundup = asked_for_checks()
    answers = [roundup.hear(node, checked(CheckState.DISABLED, taken=None), T) for node in NODES]
    assert answers[-1] == ev.ChecksFinished(attempt=2, round=1, state=CheckState.DISABLED, cause="agent-reported:17")


def failing(node: str, **more: Any) -> ev.ChecksFinished:
    failure = CheckFailure(check="disk", message=f"{node}: the disk is full", nodes=(node,))
    return checked(CheckState.FAIL, failure=failure, **more)


def test_a_node_that_failed_is_left_out_and_named() -> None:
    roundup = asked_for_checks()
    roundup.hear("gpu-3", failing("gpu-3", avoid=("gpu-3",)), T)
    roundup.hear("gpu-1", checked(), T)
    whole = roundup.hear("gpu-2", checked(), T)
    assert isinstance(whole, ev.ChecksFinished) and whole.failure is not None
    assert (whole.state, whole.avoid, whole.fatal) == (CheckState.FAIL, ("gpu-3",), False)
    assert whole.failure.message == "gpu-3: the disk is full"
    assert whole.taken is not None and [line.state for line in whole.taken.checks] == ["failed"]
    states = {node: lines[0].state for node, lines in whole.taken.where("the owner's machine").items()}
    assert states == {"gpu-3": "failed", "gpu-1": "passed", "gpu-2": "passed"}


def test_of_several_failures_the_one_that_stops_the_job_is_told() -> None:
    roundup = asked_for_checks()
    roundup.hear("gpu-1", failing("gpu-1", avoid=("gpu-1",)), T)
    roundup.hear("gpu-2", checked(), T)
    whole = roundup.hear("gpu-3", failing("gpu-3", fatal=True), T)
    assert isinstance(whole, ev.ChecksFinished) and whole.failure is not None
    assert whole.fatal and whole.failure.nodes == ("gpu-3",)
    assert whole.warnings == ("disk failed too: gpu-1: the disk is full",)


def test_warnings_have_the_names_of_their_nodes_and_stand_there_once() -> None:
    roundup = asked_for_checks()
    roundup.hear("gpu-1", checked(warnings=("shm: gpu-1: 64 MB of shared memory",)), T)
    roundup.hear("gpu-2", checked(warnings=("shm: gpu-2: 64 MB of shared memory", "clock is off")), T)
    whole = roundup.hear("gpu-3", checked(), T)
    assert isinstance(whole, ev.ChecksFinished)
    assert whole.warnings == ("gpu-1, gpu-2: shm: 64 MB of shared memory", "gpu-2: clock is off")


def test_nodes_that_do_not_answer_in_time_are_named_and_left_out() -> None:
    roundup = asked_for_checks()
    roundup.hear("gpu-2", checked(), T)
    due = roundup.next_wake()
    assert due is not None and T < due < T + CHECKS.deadline_s
    (whole,) = roundup.due(due)
    assert isinstance(whole, ev.ChecksFinished) and whole.failure is not None
    assert (whole.state, whole.avoid) == (CheckState.FAIL, ("gpu-1", "gpu-3"))
    assert whole.failure.message == "gpu-1, gpu-3: no answer to the pre-checks within 100 s"
    assert roundup.hear("gpu-1", checked(), due + 1) is None


def test_an_answer_of_another_round_or_node_counts_nothing() -> None:
    roundup = asked_for_checks()
    assert roundup.hear("gpu-1", checked(round=2), T) is None
    assert roundup.hear("gpu-9", checked(), T) is None
    for node in NODES[:2]:
        assert roundup.hear(node, checked(), T) is None
        assert roundup.hear(node, checked(), T) is None
    assert roundup.hear("gpu-3", checked(), T) is not None


def test_readers_see_the_round_of_all_nodes_and_not_every_step() -> None:
    roundup = asked_for_checks()

    def moved(state: str) -> ev.ChecksMoved:
        taken = ChecksTaken(state=CheckState.CHECKING, checks=(CheckLine(name="disk", state=state),))
        return ev.ChecksMoved(attempt=2, round=1, taken=taken)

    first = roundup.hear("gpu-1", moved("passed"), T + 0.1)
    assert isinstance(first, ev.ChecksMoved) and first.taken.checks[0].state == "passed"
    assert roundup.hear("gpu-2", moved("running"), T + 0.15) is None
    later = roundup.hear("gpu-3", moved("passed"), T + 1)
    assert isinstance(later, ev.ChecksMoved) and later.taken.checks[0].state == "running"


def test_what_is_no_answer_passes() -> None:
    roundup = asked_for_checks()
    assert roundup.hear("gpu-1", ev.Tick(), T) == ev.Tick()


# ------------------------------------------------------------------------------------------ evidence


def ended(rank: int, node: str, **how: Any) -> WorkerExit:
    fields: dict[str, Any] = {"exit_code": 1, "pid": 100, "started_at": T, "ended_at": T + 9.0, "order": 1}
    return WorkerExit(role="worker", rank=rank, node=node, attempt=1, **(fields | how))


def known(**more: Any) -> AttemptEvidence:
    workers = tuple(
        WorkerEvidence(rank=rank, node=node, exit=ended(rank, node, last_words="it ended\n"))
        for rank, node in enumerate(("gpu-1", "gpu-1", "gpu-2", "gpu-3"))
    )
    return AttemptEvidence(workers=workers, job="j", stop_asked_at=T + 9.5, **more)


def asked_for_evidence(evidence: AttemptEvidence | None = None) -> tuple[AnswerCollection, dict[str, AttemptEvidence]]:
    roundup = AnswerCollection()
    question = CollectEvidence(attempt=1, evidence=evidence or known(), cause="tick:3")
    roundup.ask(question, T + 10)
    return roundup, {node: part.evidence for node, part in parts(question)}


def said(part: AttemptEvidence, **more: Any) -> ev.EvidenceCollected:
    """A node's answer; its dates came over the wire twice, and are a little later."""
    late = tuple(
        replace(w, exit=replace(w.exit, ended_at=w.exit.ended_at + 0.02))
        for w in part.workers
        if w.exit is not None and w.exit.ended_at is not None
    )
    return ev.EvidenceCollected(attempt=1, evidence=read_workers(replace(part, workers=late, **more)))


def whole(roundup: AnswerCollection, answers: dict[str, ev.EvidenceCollected]) -> AttemptEvidence:
    found = [roundup.hear(node, answer, T + 10.1) for node, answer in answers.items()]
    assert found[:-1] == [None] * (len(found) - 1)
    assert isinstance(found[-1], ev.EvidenceCollected) and found[-1].cause == "tick:3"
    return found[-1].evidence


def test_a_node_is_asked_about_its_own_ranks() -> None:
    _, asked = asked_for_evidence()
    assert {node: [w.rank for w in part.workers] for node, part in asked.items()} == {
        "gpu-1": [0, 1],
        "gpu-2": [2],
        "gpu-3": [3],
    }


def test_what_a_node_is_asked_does_not_grow_with_the_gang() -> None:
    everyone = {f"gpu-{number}": f"10.0.0.{number}" for number in range(1, 200)}
    roundup, asked = asked_for_evidence(known(addresses=everyone))
    assert asked["gpu-2"].addresses == {"gpu-2": "10.0.0.2"}
    assert whole(roundup, {node: said(part) for node, part in asked.items()}).addresses == everyone


def test_readings_are_merged_by_rank_and_the_gang_s_dates_stand() -> None:
    roundup, asked = asked_for_evidence()
    evidence = whole(roundup, {node: said(part) for node, part in asked.items()})
    assert [worker.rank for worker in evidence.workers] == [0, 1, 2, 3]
    assert all(worker.reading is not None for worker in evidence.workers)
    assert [w.exit.ended_at for w in evidence.workers if w.exit] == [T + 9.0] * 4
    assert (evidence.job, evidence.stop_asked_at, evidence.unanswered) == ("j", T + 9.5, ())


def test_facts_keep_their_node() -> None:
    roundup, asked = asked_for_evidence()
    kill = MemoryKill(source="kernel log", text="Killed process 100", node="gpu-2", pid=100)
    line = Evidence(kind=EvidenceKind.KERNEL, text="oom-kill", node="gpu-2")
    order = Evidence(kind=EvidenceKind.LOG, text='ACTION "KILL"', source="cleaner")
    answers = {node: said(part) for node, part in asked.items()}
    answers["gpu-2"] = said(
        asked["gpu-2"],
        memory_kills=(kill,),
        kernel=(line,),
        pai_errors=(order,),
        store="the store ended",
        passed_on=(10,),
        checkpoints=("/ckpt/2",),
        surroundings=HostFacts(module="flash_attn"),
    )
    answers["gpu-3"] = said(asked["gpu-3"], passed_on=(10, 12), checkpoints=("/ckpt/3",))
    evidence = whole(roundup, answers)
    assert evidence.memory_kills == (kill,) and evidence.kernel == (line,)
    assert evidence.pai_errors == (replace(order, node="gpu-2"),)
    assert (evidence.store, evidence.passed_on) == ("the store ended", (10, 12))
    assert evidence.checkpoints == ("/ckpt/2", "/ckpt/3")
    assert evidence.surroundings is not None and evidence.surroundings.module == "flash_attn"


def test_a_fault_that_the_gang_knows_is_not_told_twice() -> None:
    def fault(at: float, node: str = "gpu-2", code: str = "79") -> ActiveFault:
        event = FaultEvent(device="gpu0", code=code, assertion=Assertion.OCCUR, at=at, node=node)
        return ActiveFault(event=event, remedy=Remedy.ISOLATE)

    roundup, asked = asked_for_evidence(known(faults=(fault(T + 5),)))
    assert all(part.faults == () for part in asked.values())
    answers = {node: said(part) for node, part in asked.items()}
    answers["gpu-2"] = said(asked["gpu-2"], faults=(fault(T + 5.02), fault(T + 6, code="63")))
    answers["gpu-3"] = said(asked["gpu-3"], faults=(fault(T + 5.02, node="gpu-3"),))
    told = whole(roundup, answers).faults
    assert [(each.event.node, each.event.code, each.event.at) for each in told] == [
        ("gpu-2", "79", T + 5),
        ("gpu-2", "63", T + 6),
        ("gpu-3", "79", T + 5.02),
    ]


def test_stacks_that_workers_wrote_at_the_end_are_put_into_the_hang() -> None:
    def shot(at: float, rank: int, *frames: str) -> RankSnapshot:
        return RankSnapshot(rank=rank, pid=100, at=at, threads=(ThreadState(tid=1, state="S", frames=frames),))

    looks = tuple(tuple(shot(at, rank) for rank in range(4)) for at in (T + 6, T + 8))
    hang = HangEvidence(attempt=1, silent_s=60.0, looks=looks, culprits=(0, 1, 2, 3), why="nothing", at=T + 8)
    roundup, asked = asked_for_evidence(known(hang=hang))
    assert asked["gpu-2"].hang is not None and [s.rank for s in asked["gpu-2"].hang.looks[0]] == [2]
    answers = {}
    for node, part in asked.items():
        frames = ("load (data.py:3)",) if node == "gpu-2" else ("all_reduce (distributed_c10d.py:9)", "main (t.py:5)")
        assert part.hang is not None
        seen = tuple(tuple(shot(s.at, s.rank, *frames) for s in look) for look in part.hang.looks)
        answers[node] = said(part, hang=replace(part.hang, looks=seen))
    found = whole(roundup, answers).hang
    assert found is not None and found.culprits == (2,) and "data.py:3" in found.why


def test_a_node_that_does_not_answer_is_named_and_its_ranks_are_explained_by_their_exits() -> None:
    evidence = known()
    first = replace(evidence.workers[3], exit=ended(3, "gpu-3", exit_code=None, signal=11, ended_at=T + 8.0))
    roundup, asked = asked_for_evidence(replace(evidence, workers=(*evidence.workers[:3], first)))
    for node in ("gpu-1", "gpu-2"):
        assert roundup.hear(node, said(asked[node]), T + 10) is None
    assert roundup.next_wake() == T + 10 + EVIDENCE_S
    (answer,) = roundup.due(T + 10 + EVIDENCE_S)
    assert isinstance(answer, ev.EvidenceCollected)
    assert answer.evidence.unanswered == (LeftBehind(node="gpu-3", silent_s=EVIDENCE_S, ranks=(3,)),)
    report = explain(answer.evidence)
    assert report.first is not None and (report.first.rank, report.first.node) == (3, "gpu-3")
    told = [item.text for item in report.evidence if "gave no evidence" in item.text]
    assert told == ["gpu-3 gave no evidence within 10 s: of rank 3 only the exit is known"]


@pytest.mark.parametrize(
    "lost",
    [
        LeftBehind(node="gpu-3", silent_s=6.0, ranks=(3,)),
        LeftBehind(node="gpu-3", silent_s=0.0, ranks=(3,), why="its guard was killed", gone=True),
    ],
)
def test_a_node_that_was_lost_or_has_left_is_not_asked(lost: LeftBehind) -> None:
    _, asked = asked_for_evidence(known(lost=(lost,)))
    assert list(asked) == ["gpu-1", "gpu-2"]


def test_late_evidence_or_that_of_another_attempt_counts_nothing() -> None:
    roundup, asked = asked_for_evidence()
    assert roundup.hear("gpu-1", replace(said(asked["gpu-1"]), attempt=7), T) is None
    list(roundup.due(T + 10 + EVIDENCE_S))
    assert roundup.hear("gpu-1", said(asked["gpu-1"]), T) is None


def test_a_completed_job_needs_no_reading() -> None:
    roundup, asked = asked_for_evidence()
    answers = {
        node: ev.EvidenceCollected(
            attempt=1, evidence=replace(part, workers=tuple(replace(w, last_step=7) for w in part.workers))
        )
        for node, part in asked.items()
    }
    evidence = whole(roundup, answers)
    assert [worker.last_step for worker in evidence.workers] == [7] * 4
    assert evidence.workers[0].exit == known().workers[0].exit


def calls_to_explain(count: int) -> int:
    """The Python calls that an owner makes to decode, date, merge and explain the evidence of `count` ranks."""
    from holdfast.wire.message_ages import aged, dated

    words = "".join(
        f"rank said {number}: Connection closed by peer [10.0.0.{number % 250}]:4711\n" for number in range(20)
    )
    own_words = "Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\nValueError: the data ended\n"
    workers = tuple(
        WorkerEvidence(
            rank=rank,
            node=f"gpu-{rank // 8}",
            exit=ended(rank, f"gpu-{rank // 8}", ended_at=T + 9 + rank / 1000),
            stderr=LogExcerpt(source=f"worker-{rank} stderr", text=words if rank else own_words),
        )
        for rank in range(count)
    )
    bare = AttemptEvidence(workers=tuple(replace(w, stderr=None) for w in workers), stop_asked_at=T + 12)
    roundup, asked = asked_for_evidence(bare)
    frames = []
    for node, part in asked.items():
        mine = [worker for worker in workers if worker.node == node]
        answer = ev.EvidenceCollected(attempt=1, evidence=read_workers(replace(part, workers=tuple(mine))))
        frames.append((node, msgspec.msgpack.encode(aged(answer, T))))
    calls = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        whole_one = None
        for node, frame in frames:
            heard = dated(msgspec.msgpack.decode(frame, type=ev.EvidenceCollected), T)
            whole_one = roundup.hear(node, heard, T + 11)
        assert isinstance(whole_one, ev.EvidenceCollected)
        first = explain(whole_one.evidence).first
        assert first is not None and first.rank == 0
    finally:
        sys.setprofile(None)
    return calls


def test_the_owner_s_work_grows_no_faster_than_the_number_of_failed_ranks() -> None:
    """Guards against the square, which a thousand ranks would turn into minutes."""
    calls_to_explain(80)  # what is read and compiled once
    assert calls_to_explain(640) < 2.5 * calls_to_explain(320)


# ------------------------------------------------------------------------------------------ over the link


def test_the_owner_hears_of_one_question_to_several_nodes_once() -> None:
    now = [T]
    reactor, link = Reactor(lambda: now[0]), InProcess()
    sent: dict[str, list[Any]] = {node: [] for node in NODES}
    heard: list[Any] = []
    questions = NodeQueries(link, reactor, ON_THREE, heard.append)
    link.join(heard.append, {node: requests.append for node, requests in sent.items()})
    questions.send_all(CHECKS)
    assert sent == {node: [CHECKS] for node in NODES}
    questions.report(Report(node="gpu-1", boot=1, attempt=2, stopped=1, sent=T), "gpu-1")
    for node in NODES[:2]:
        questions.report(checked(), node)
    assert len(heard) == 1 and isinstance(heard[0], Report)
    now[0] += CHECKS.deadline_s
    due: list[Any] = []
    reactor.at(now[0], lambda now: None)
    reactor.wait(lambda events: due.extend(events or ()))
    assert [(type(event), event.avoid) for event in due] == [(ev.ChecksFinished, ("gpu-3",))]
    reactor.close()
