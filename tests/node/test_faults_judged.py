"""What a fault means for a job, without processes: time is passed in, the book and its rules are real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import T
from holdfast.decide.agent import Agent
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.decide.gang import Gang
from holdfast.decide.phases import Phase
from holdfast.decide.placement import place, users
from holdfast.explain import explain
from holdfast.model import events as ev
from holdfast.model.check_results import CheckState
from holdfast.model.evidence import AttemptEvidence, StopRequest, StopSource, WorkerEvidence
from holdfast.model.exit_report import Blame, Rerun, WorkerExit
from holdfast.model.faults import ActiveFault, Assertion, FaultEvent, Remedy
from holdfast.model.gang_protocol import Go, Member, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import JobKind, JobSpec, NodeInfo, Placement, Role
from holdfast.model.process_messages import (
    AllReaped,
    Instruction,
    NotifyWorkers,
    SignalWorkers,
    WorkerExited,
    WorkerPrepared,
    WorkersNotified,
    WorkerUp,
)
from holdfast.node.devices.buffered_log import BufferedFaultLog
from holdfast.node.devices.device_locks import DeviceLocks
from holdfast.node.devices.device_resets import ResetCommand, Resets
from holdfast.node.devices.fault_log import FaultLog
from holdfast.node.devices.job_faults import JobFaults
from holdfast.node.devices.vendor_query import DeviceUsers
from holdfast.reactor import Reactor

FOUR_GPUS = NodeInfo(name="n1", slots=4, devices=("gpu0", "gpu1", "gpu2", "gpu3"))


class JudgedJob:
    """A job's view of the faults of `n1`, with a book of its own."""

    def __init__(self, home: Path, kind: JobKind = JobKind.TRAINING, command: str | None = None) -> None:
        self.home = home
        self.said: list[str] = []
        self.reactor = Reactor(lambda: T)
        policy = default_policy()
        self.desk = BufferedFaultLog(FaultLog(home, policy, T, writable=True), policy)
        resets = Resets(
            ResetCommand(command, group=1, logs=home),
            policy.grace,
            self.reactor,
            lambda fd, now: None,
            DeviceUsers(DeviceLocks(home, "n1", self.said.append)),
            self.said.append,
            self.desk,
        )
        spec = JobSpec(name="j", roles=(Role(name="worker", count=2, command=("x",)),), kind=kind)
        self.judge = JobFaults(self.desk, resets, spec, FOUR_GPUS, self.said.append)
        self.judge.begin(T)

    def fault(self, code: str, at: float, how: Assertion = Assertion.OCCUR, device: str = "gpu0") -> list[ev.FaultSeen]:
        event = FaultEvent(device=device, code=code, assertion=how, at=at, node="n1", source="test")
        return faults_seen(self.judge.note([event], at))


def faults_seen(events: list[ev.Event]) -> list[ev.FaultSeen]:
    return [event for event in events if isinstance(event, ev.FaultSeen)]


@pytest.fixture
def training(tmp_path: Path) -> Iterator[JudgedJob]:
    job = JudgedJob(tmp_path)
    yield job
    job.judge.close()


@pytest.fixture
def inference(tmp_path: Path) -> Iterator[JudgedJob]:
    job = JudgedJob(tmp_path, JobKind.INFERENCE)
    yield job
    job.judge.close()


# ---------------------------------------------------------------------------------------------- waiting


def test_a_request_fault_leaves_an_inference_job_alone_for_sixty_seconds(inference: JudgedJob) -> None:
    (found,) = inference.fault("80BB8000", T)
    assert (found.remedy, found.stop, found.avoid) == (Remedy.RETRY_REQUEST, False, ())
    due = inference.judge.next_wake()
    assert due is not None
    assert due > T + 60.0
    assert faults_seen(inference.judge.tick(T + 60.0)) == []
    (found,) = faults_seen(inference.judge.tick(due))
    assert (found.stop, found.avoid) == (True, ("gpu0",))


def test_a_request_fault_that_is_over_in_time_stops_nobody(inference: JudgedJob) -> None:
    inference.fault("80BB8000", T)
    assert inference.fault("80BB8000", T + 59, Assertion.RECOVER) == []
    assert faults_seen(inference.judge.tick(T + 61)) == []
    assert inference.judge.next_wake() is None


def test_a_request_fault_stops_a_training_job_in_place(training: JudgedJob) -> None:
    (found,) = training.fault("80BB8000", T)
    assert (found.stop, found.avoid, found.save_s) == (True, (), 30.0)


def test_a_restart_fault_has_its_time_to_heal(training: JudgedJob) -> None:
    (found,) = training.fault("80E01801", T)
    assert (found.stop, training.judge.next_wake()) == (False, T + 15)
    (found,) = faults_seen(training.judge.tick(T + 15))
    assert (found.stop, found.avoid, found.save_s, found.remedy) == (True, (), 30.0, Remedy.RESTART_WORKERS)
    assert "did not heal within 15 s" in found.why


def test_a_restart_fault_that_heals_stops_nobody(training: JudgedJob) -> None:
    training.fault("80E01801", T)
    assert not any(event.stop for event in training.fault("80E01801", T + 14, Assertion.RECOVER))
    assert faults_seen(training.judge.tick(T + 20)) == []


def test_a_moment_cannot_heal_but_a_program_may_speak_for_itself(training: JudgedJob) -> None:
    (found,) = training.fault("94", T, Assertion.ONCE)
    assert found.stop
    (found,) = training.fault("31", T + 5, Assertion.ONCE, "gpu1")
    assert not found.stop


def test_a_graver_fault_does_not_wait_for_a_milder_one_to_heal(training: JudgedJob) -> None:
    training.fault("80E01801", T)
    (found,) = training.fault("79", T + 1)
    assert (found.stop, found.avoid) == (True, ("gpu0",))
    assert not any(event.stop for event in faults_seen(training.judge.tick(T + 16)))


def test_a_reset_without_a_command_means_elsewhere_and_is_said_once(training: JudgedJob) -> None:
    for device in ("gpu0", "gpu1"):
        (found,) = training.fault("48", T, device=device)
        assert (found.stop, found.avoid, found.reset_s) == (True, (device,), 0.0)
    assert len([text for text in training.said if "there is no reset-command" in text]) == 1


def test_a_reset_keeps_the_device_and_tells_how_long_it_may_take(tmp_path: Path) -> None:
    job = JudgedJob(tmp_path, command="true")
    (found,) = job.fault("48", T)
    assert (found.stop, found.avoid, found.save_s, found.reset_s) == (True, (), 30.0, 600.0)
    job.judge.close()


def test_other_peoples_reports_come_with_their_words(training: JudgedJob) -> None:
    with FaultLog(training.home, default_policy(), T, writable=True) as book:
        event = FaultEvent(
            device="gpu0", code="79", assertion=Assertion.OCCUR, at=T + 1, node="n1", text="gone", source="pingmesh"
        )
        book.report(event, T + 1)
    (found,) = faults_seen(training.judge.refresh(T + 2))
    assert (found.fault.text, found.fault.source, found.stop) == ("gone", "pingmesh", True)
    (fault,) = training.judge.overlapping(T, T + 5, {"gpu0": (0,)})
    assert fault.ranks == (0,)
    assert training.judge.overlapping(T, T + 5, {"gpu1": (1,)}) == ()


def test_a_device_of_another_node_concerns_nobody_here(training: JudgedJob) -> None:
    assert training.fault("79", T, device="gpu9") == []


# ---------------------------------------------------------------------------------------------- whose device it is


def placements(count: int, avoid: tuple[str, ...] = ()) -> tuple[Placement, ...]:
    spec = JobSpec(name="j", roles=(Role(name="worker", count=count, command=("x",)),))
    found = place(spec, (FOUR_GPUS,), avoid)
    assert found is not None
    return found


def test_of_several_workers_each_has_its_own() -> None:
    two = placements(2)
    assert [users(device, two, (FOUR_GPUS,)) for device in ("gpu0", "gpu1", "gpu3", "n1")] == [(0,), (1,), (), (0, 1)]


def test_one_alone_may_drive_all_it_sees() -> None:
    assert users("gpu3", placements(1), (FOUR_GPUS,)) == (0,)
    assert users("gpu3", placements(1, ("gpu3",)), (FOUR_GPUS,)) == ()


# ---------------------------------------------------------------------------------------------- the agent


def running_agent(save_s: float) -> tuple[Agent, list[Instruction]]:
    """An agent with two workers that gets STOP at second 10."""
    agent = Agent("n1", boot=1)
    two = tuple(Placement(rank=rank, role="worker", role_rank=rank, node="n1", local_rank=rank) for rank in range(2))
    agent.obey(Prepare(attempt=1, placements=two), 0.0)
    for rank in range(2):
        agent.learn(WorkerPrepared(attempt=1, rank=rank, pid=rank), 1.0)
    agent.obey(Go(attempt=1), 2.0)
    for rank in range(2):
        agent.learn(WorkerUp(attempt=1, rank=rank), 3.0)
    return agent, agent.obey(Stop(attempt=1, reason="Xid 48", grace_s=5.0, save_s=save_s), 10.0)


def orders(out: list[Instruction]) -> list[str]:
    names = {NotifyWorkers: "notify", SignalWorkers: "signal"}
    return [
        "kill" if isinstance(order, SignalWorkers) and order.hard else names[type(order)]
        for order in out
        if type(order) in names
    ]


def left(rank: int, at: float, code: int = 0) -> WorkerExited:
    ended = WorkerExit(role="worker", rank=rank, node="n1", attempt=1, exit_code=code, ended_at=at)
    return WorkerExited(exit=ended)


def test_a_stop_without_time_to_save_is_a_signal() -> None:
    agent, out = running_agent(0.0)
    assert (orders(out), agent.next_wake()) == (["signal"], 15.0)


def test_listeners_get_their_time_and_the_grace_comes_after_it() -> None:
    agent, out = running_agent(30.0)
    assert orders(out) == ["notify"]
    assert orders(agent.learn(WorkersNotified(attempt=1, listening=(0, 1)), 10.0)) == []
    assert orders(agent.obey(Stop(attempt=1, reason="Xid 48", grace_s=5.0, save_s=30.0), 20.0)) == []
    assert agent.next_wake() == 40.0
    assert orders(agent.tick(40.0)) == ["signal"]
    assert orders(agent.tick(45.0)) == ["kill"]


def test_nobody_listens_nobody_is_waited_for() -> None:
    agent, _ = running_agent(30.0)
    assert orders(agent.learn(WorkersNotified(attempt=1, listening=()), 10.0)) == ["signal"]
    assert agent.next_wake() == 15.0


def test_the_last_listener_ends_the_waiting() -> None:
    agent, _ = running_agent(30.0)
    agent.learn(WorkersNotified(attempt=1, listening=(1,)), 10.0)
    assert orders(agent.learn(left(1, 12.0), 12.0)) == ["signal"]
    agent.learn(left(0, 13.0, code=1), 13.0)
    agent.learn(AllReaped(attempt=1), 13.0)
    assert (agent.stopped, agent.next_wake()) == (1, None)
    assert (agent.state(0), agent.state(1)) == (MemberState.STOPPED, MemberState.DONE)


def test_a_hurry_ends_the_waiting() -> None:
    agent, _ = running_agent(30.0)
    agent.learn(WorkersNotified(attempt=1, listening=(0, 1)), 10.0)
    assert orders(agent.obey(Stop(attempt=1, reason="Ctrl-C", grace_s=5.0), 15.0)) == ["signal"]
    assert agent.next_wake() == 20.0


# ---------------------------------------------------------------------------------------------- the gang and the report


def running_gang(count: int = 2) -> Gang:
    """All workers are up at second 3."""
    found = Gang()
    spec = JobSpec(name="j", roles=(Role(name="worker", count=count, command=("x",)),), checks=())
    found.handle(ev.JobSubmitted(job_id="j", spec=spec, nodes=(FOUR_GPUS,)), 0.0)
    found.handle(ev.ChecksFinished(attempt=1, round=1, state=CheckState.DISABLED), 0.0)
    for at, state in ((1.0, MemberState.PREPARED), (3.0, MemberState.UP)):
        found.handle(ev.AgentReported(report=members_report(count, state, at)), at)
    assert found.phase is Phase.RUNNING
    return found


def members_report(count: int, state: MemberState, at: float, stopped: int = 0) -> Report:
    exits = {
        rank: WorkerExit(role="worker", rank=rank, node="n1", attempt=1, exit_code=0, ended_at=at)
        for rank in range(count)
    }
    members = tuple(
        Member(rank=rank, state=state, exit=exits[rank] if state is MemberState.DONE else None) for rank in range(count)
    )
    return Report(node="n1", boot=1, attempt=1, stopped=stopped, sent=at, members=members)


def device_fault(code: str, device: str = "gpu0") -> FaultEvent:
    return FaultEvent(device=device, code=code, assertion=Assertion.OCCUR, at=T, node="n1", source="test")


def test_all_leave_well_in_a_drain_and_the_job_goes_on() -> None:
    owner = running_gang()
    seen_ = ev.FaultSeen(
        fault=device_fault("48"), remedy=Remedy.RESET_NOW, stop=True, save_s=30.0, reset_s=600.0, why="reset"
    )
    actions = owner.handle(seen_, 5.0)
    assert [a.command for a in actions if hasattr(a, "command")] == [
        Stop(attempt=1, reason="reset", grace_s=30.0, save_s=30.0, term=1)
    ]
    owner.handle(ev.AgentReported(report=members_report(2, MemberState.DONE, 6.0, stopped=1)), 6.0)
    evidence = owner.attempt_state.evidence(Phase.DRAINING, "j")
    owner.handle(ev.EvidenceCollected(attempt=1, evidence=evidence), 7.0)
    owner.handle(ev.Tick(), 7.0)
    (record,) = owner.records
    assert (record.report.phrase, record.report.rerun, record.decision.charged) == (
        "AcceleratorMemoryError",
        Rerun.NOW,
        False,
    )
    assert owner.phase == "BACKOFF"
    owner.handle(ev.Tick(), 8.0)
    # The checks' own limit begins after the reset.
    assert (owner.phase.value, owner.next_wake()) == ("CHECKING", 8.0 + 600.0 + 600.0)


def test_a_person_stops_a_job_that_drains_for_a_fault() -> None:
    owner = running_gang()
    owner.handle(
        ev.FaultSeen(fault=device_fault("48"), remedy=Remedy.RESET_NOW, stop=True, save_s=30.0, why="reset"), 5.0
    )
    request = StopRequest(reason="enough", at=6.0)
    actions = owner.handle(ev.StopRequested(request=request), 6.0)
    assert [a.command.save_s for a in actions if hasattr(a, "command") and isinstance(a.command, Stop)] == [0.0]
    owner.handle(ev.AgentReported(report=members_report(2, MemberState.DONE, 6.5, stopped=1)), 6.5)
    owner.handle(ev.EvidenceCollected(attempt=1, evidence=owner.attempt_state.evidence(Phase.DRAINING, "j")), 7.0)
    owner.handle(ev.Tick(), 7.0)
    assert owner.report is not None
    assert owner.report.report.phrase == "StoppedByOperator"
    assert owner.records[0].report.phrase == "AcceleratorMemoryError"


def test_a_fault_of_a_device_that_the_job_has_left_does_not_stop_it() -> None:
    owner = running_gang()
    stays = ev.FaultSeen(
        fault=device_fault("79", "gpu3"), remedy=Remedy.ISOLATE, stop=True, avoid=("gpu3",), why="gone"
    )
    owner.handle(stays, 5.0)
    assert owner.phase is Phase.RUNNING
    assert owner.attempt_state.faults == []
    assert owner.avoid == {"gpu3"}


@pytest.mark.parametrize(
    ("fault", "rerun"),
    [
        (ActiveFault(event=device_fault("020000002"), remedy=Remedy.WATCH, stopped=True, avoid=True), Rerun.ELSEWHERE),
        (ActiveFault(event=device_fault("80E01801"), remedy=Remedy.RESTART_WORKERS, stopped=True), Rerun.NOW),
        (ActiveFault(event=device_fault("48"), remedy=Remedy.RESET_NOW, stopped=True), Rerun.NOW),
        (ActiveFault(event=device_fault("48"), remedy=Remedy.RESET_NOW, stopped=True, avoid=True), Rerun.ELSEWHERE),
        (ActiveFault(event=device_fault("79"), remedy=Remedy.ISOLATE, stopped=True), Rerun.ELSEWHERE),
    ],
    ids=["watch", "restart", "reset", "no command", "isolate"],
)
def test_where_the_job_goes_on(fault: ActiveFault, rerun: Rerun) -> None:
    exits = [
        WorkerEvidence(
            rank=rank,
            node="n1",
            exit=WorkerExit(
                role="worker", rank=rank, node="n1", attempt=1, pid=9, signal=15, ended_at=T + 2, after_stop=True
            ),
        )
        for rank in range(2)
    ]
    stop = StopRequest(reason="fault", source=StopSource.FAULT, at=T + 1, final=False)
    report = explain(AttemptEvidence(workers=tuple(exits), faults=(fault,), stop=stop, stop_asked_at=T + 1))
    assert (report.blame, report.rerun, report.devices) == (Blame.HARDWARE, rerun, ("gpu0",))
