"""The agent: whom it obeys, when it kills its own, and what it says of the dead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decide.agent import Agent
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import ALIVE, Ack, Go, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import Placement
from holdfast.model.process_messages import (
    AllReaped,
    Fact,
    Instruction,
    ReleaseWorker,
    SendReport,
    SignalWorkers,
    StartWorker,
    WorkerExited,
    WorkerPrepared,
    WorkersNotified,
    WorkerStartFailed,
    WorkerUp,
)

LEASE_S, BEAT_S = 30.0, 5.0
THREE_SEATS = tuple(
    Placement(rank=rank, role="worker", role_rank=rank, node="here" if rank < 2 else "there", local_rank=rank % 2)
    for rank in range(3)
)


class AgentNode:
    """An agent with a machine that obeys; what must hold of any agent is asserted at every instruction."""

    def __init__(self, lease_s: float | None = LEASE_S) -> None:
        self.agent = Agent("here", 1, lease_s=lease_s, beat_s=BEAT_S)
        self.now = 10.0
        self.live: dict[int, int] = {}
        self.out: list[Instruction] = []
        self.take(self.agent.tick(self.now))

    def take(self, out: list[Instruction]) -> list[Instruction]:
        self.out = out
        for order in out:
            if isinstance(order, StartWorker):
                assert order.placement.rank not in self.live, "two processes of one rank"
                assert set(self.live.values()) <= {order.attempt}, "two attempts at once"
                assert order.placement.node == "here"
                self.live[order.placement.rank] = order.attempt
            elif isinstance(order, ReleaseWorker):
                assert self.live.get(order.rank) == order.attempt
            elif isinstance(order, SendReport):
                assert not any(attempt <= order.report.stopped for attempt in self.live.values()), "stopped, and lives"
        return out

    def obey(self, command: Any) -> list[Instruction]:
        return self.take(self.agent.obey(command, self.now))

    def learn(self, fact: Any) -> list[Instruction]:
        return self.take(self.agent.learn(fact, self.now))

    def wait(self, seconds: float) -> list[Instruction]:
        until, out = self.now + seconds, list[Instruction]()
        while (wake := self.agent.next_wake()) is not None and wake <= until:
            assert wake >= self.now or not out, "woken for a moment that has passed"
            self.now = max(self.now, wake)
            out += self.take(self.agent.tick(self.now))
        self.now = until
        self.out = out
        return out

    def acknowledge(self, *, floor: int = 0, sent: float | None = None) -> None:
        self.obey(Ack(sent=self.now if sent is None else sent, floor=floor))

    def die(self, rank: int, **how: Any) -> None:
        attempt = self.live.pop(rank)
        fields: dict[str, Any] = {"role": "worker", "rank": rank, "node": "here", "attempt": attempt, "pid": 7}
        self.learn(WorkerExited(exit=WorkerExit(**(fields | how))))

    def reap(self, attempt: int) -> None:
        for rank in list(self.live):
            self.die(rank, signal=15)
        self.learn(AllReaped(attempt=attempt))

    def to(self, state: MemberState, attempt: int = 1) -> None:
        self.acknowledge()
        self.obey(Prepare(attempt=attempt, placements=THREE_SEATS))
        for rank in self.live if state is not MemberState.BOOTING else ():
            self.learn(WorkerPrepared(attempt=attempt, rank=rank, pid=7))
        if state in (MemberState.GOING, MemberState.UP):
            self.obey(Go(attempt=attempt))
        for rank in self.live if state is MemberState.UP else ():
            self.learn(WorkerUp(attempt=attempt, rank=rank))
        assert self.agent.state(0) is state

    def stop(self, attempt: int, grace_s: float = 5.0) -> list[Instruction]:
        return self.obey(Stop(attempt=attempt, reason="enough", grace_s=grace_s))

    @property
    def said(self) -> Report:
        """The last report."""
        return [order.report for order in self.out if isinstance(order, SendReport)][-1]

    def kinds(self) -> set[type]:
        return {type(order) for order in self.out}


@pytest.fixture
def agent_node() -> Iterator[AgentNode]:
    made = AgentNode()
    yield made
    assert len(set(made.live.values())) <= 1


# ---------------------------------------------------------------------------------------------- starting


def test_prepare_starts_its_own_ranks_once(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.BOOTING)
    assert set(agent_node.live) == {0, 1}
    agent_node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert agent_node.kinds() == {SendReport}, "it only says how things are"


def test_go_is_for_the_prepared_and_said_twice_does_nothing(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.BOOTING)
    agent_node.learn(WorkerPrepared(attempt=1, rank=0, pid=7))
    agent_node.obey(Go(attempt=1))
    assert [order.rank for order in agent_node.out if isinstance(order, ReleaseWorker)] == [0]
    agent_node.obey(Go(attempt=1))
    assert agent_node.kinds() == {SendReport}
    assert agent_node.agent.state(1) is MemberState.BOOTING


@pytest.mark.parametrize("attempt", [0, 2, 3])
def test_the_go_of_another_attempt_is_not_obeyed(agent_node: AgentNode, attempt: int) -> None:
    agent_node.to(MemberState.PREPARED)
    agent_node.obey(Go(attempt=attempt))
    assert agent_node.agent.state(0) is MemberState.PREPARED


def test_nothing_starts_without_a_lease(agent_node: AgentNode) -> None:
    agent_node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert not agent_node.live
    agent_node.acknowledge()
    agent_node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert set(agent_node.live) == {0, 1}


def test_on_one_machine_there_is_no_lease_and_no_heartbeat() -> None:
    node = AgentNode(lease_s=None)
    assert node.agent.next_wake() is None
    node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert set(node.live) == {0, 1}
    assert node.wait(10_000.0) == []


@pytest.mark.parametrize(("floor", "starts"), [(0, True), (1, False), (2, False)])
def test_nothing_starts_at_or_below_the_floor(agent_node: AgentNode, floor: int, starts: bool) -> None:
    agent_node.acknowledge(floor=floor)
    agent_node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert bool(agent_node.live) is starts


def test_a_stop_that_comes_first_is_remembered(agent_node: AgentNode) -> None:
    agent_node.acknowledge()
    agent_node.stop(1)
    assert agent_node.said.stopped == 1
    agent_node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert not agent_node.live
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS))
    assert set(agent_node.live.values()) == {2}


def test_a_stop_of_a_later_attempt_is_remembered_while_an_older_one_lives(agent_node: AgentNode) -> None:
    """The PREPARE of the later attempt may be on its way still, behind its STOP."""
    agent_node.to(MemberState.UP)
    agent_node.stop(2)
    agent_node.reap(1)
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS))
    assert not agent_node.live
    agent_node.obey(Prepare(attempt=3, placements=THREE_SEATS))
    assert set(agent_node.live.values()) == {3}


def test_a_stop_that_a_later_one_has_overtaken_lowers_no_memory(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.stop(3)
    agent_node.stop(2)
    agent_node.reap(1)
    agent_node.obey(Prepare(attempt=3, placements=THREE_SEATS))
    assert not agent_node.live


def test_a_stop_of_a_later_attempt_ends_what_lives_of_an_older_one(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.stop(2)
    assert [(order.attempt, order.hard) for order in agent_node.out if isinstance(order, SignalWorkers)] == [(1, False)]
    agent_node.reap(1)
    agent_node.stop(2)
    assert agent_node.said.stopped == 2


def test_an_answer_that_a_later_one_has_overtaken_lowers_no_floor(agent_node: AgentNode) -> None:
    agent_node.acknowledge(floor=1)
    agent_node.acknowledge(floor=0)
    agent_node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert not agent_node.live


def test_a_newer_attempt_waits_until_the_old_one_is_gone(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS))
    assert set(agent_node.live.values()) == {1}
    agent_node.wait(0.0)
    assert any(isinstance(order, SignalWorkers) and order.hard for order in agent_node.out)
    agent_node.reap(1)
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS))
    assert set(agent_node.live.values()) == {2}


def test_an_older_attempt_is_not_obeyed(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP, attempt=2)
    for command in (
        Prepare(attempt=1, placements=THREE_SEATS),
        Go(attempt=1),
        Stop(attempt=1, reason="late", grace_s=0.0),
    ):
        agent_node.obey(command)
        assert agent_node.kinds() == {SendReport}
    assert agent_node.agent.state(0) is MemberState.UP


# ---------------------------------------------------------------------------------------------- stopping


def test_stop_is_term_then_grace_then_kill_and_stopped_only_when_reaped(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.stop(1)
    assert [order.hard for order in agent_node.out if isinstance(order, SignalWorkers)] == [False]
    agent_node.die(0, signal=15)
    agent_node.stop(1)
    assert not any(isinstance(order, SignalWorkers) for order in agent_node.out), "said again, it does nothing"
    assert agent_node.said.stopped == 0
    agent_node.wait(5.0)
    assert [order.hard for order in agent_node.out if isinstance(order, SignalWorkers)] == [True]
    agent_node.reap(1)
    assert agent_node.said.stopped == 1
    assert {member.state for member in agent_node.said.members} == {MemberState.STOPPED}


def test_an_owner_of_before_is_not_obeyed(agent_node: AgentNode) -> None:
    agent_node.acknowledge(sent=agent_node.now)
    agent_node.obey(Stop(attempt=1, reason="an owner that is back", grace_s=0.0, term=3))
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS, term=2))
    assert not agent_node.live
    assert agent_node.said.term == 3
    assert agent_node.obey(Ack(sent=agent_node.now, term=2)) == []
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS, term=3))
    assert set(agent_node.live.values()) == {2}


def test_a_shorter_grace_counts_and_a_longer_one_does_not(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.stop(1, grace_s=20.0)
    agent_node.stop(1, grace_s=60.0)
    agent_node.stop(1, grace_s=2.0)
    agent_node.wait(2.0)
    assert [order.hard for order in agent_node.out if isinstance(order, SignalWorkers)] == [True]


def test_whoever_has_been_killed_is_not_killed_for_ever(agent_node: AgentNode) -> None:
    """A process that takes its time to die must not keep the loop awake."""
    agent_node.to(MemberState.UP)
    agent_node.stop(1, grace_s=0.0)
    agent_node.wait(0.0)
    hard = [order for order in agent_node.wait(20.0) if isinstance(order, SignalWorkers)]
    assert not hard
    agent_node.reap(1)


# ---------------------------------------------------------------------------------------------- the lease


def test_an_attempt_after_a_kill_ends_with_its_lease_as_any_other(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.stop(1, grace_s=0.0)
    agent_node.wait(0.0)
    agent_node.reap(1)
    agent_node.acknowledge(sent=agent_node.now)
    agent_node.obey(Prepare(attempt=2, placements=THREE_SEATS))
    assert set(agent_node.live.values()) == {2}
    agent_node.wait(LEASE_S + 0.1)
    assert [order.attempt for order in agent_node.out if isinstance(order, SignalWorkers) and order.hard] == [2]
    agent_node.reap(2)


def test_the_lease_is_counted_from_the_sending(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    sent, agent_node.now = agent_node.now, agent_node.now + 20.0
    agent_node.acknowledge(sent=sent)
    agent_node.wait(LEASE_S - 20.0 - 0.1)
    assert not any(isinstance(order, SignalWorkers) for order in agent_node.out)
    agent_node.wait(0.2)
    assert [order.hard for order in agent_node.out if isinstance(order, SignalWorkers)] == [True]
    agent_node.reap(1)
    assert agent_node.said.stopped == 1
    assert {member.state for member in agent_node.said.members} == {MemberState.STOPPED}


def test_no_worker_is_let_go_after_the_end_of_a_lease(agent_node: AgentNode) -> None:
    """The owner's GO and a new lease may come while the killed workers die."""
    agent_node.to(MemberState.PREPARED)
    agent_node.wait(LEASE_S + 0.1)
    agent_node.acknowledge()
    agent_node.obey(Go(attempt=1))
    assert not any(isinstance(order, ReleaseWorker) for order in agent_node.out)
    agent_node.reap(1)


def test_an_answer_to_the_agent_of_before_grants_nothing() -> None:
    node = AgentNode()
    node.acknowledge(sent=9.0)
    node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert not node.live
    node.acknowledge(sent=node.now + 1000.0)  # its clock had run on since the machine's last boot
    node.obey(Prepare(attempt=1, placements=THREE_SEATS))
    assert not node.live


def test_what_the_owner_holds_for_dead_dies(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    agent_node.acknowledge(floor=1)
    agent_node.wait(0.0)
    assert any(isinstance(order, SignalWorkers) and order.hard for order in agent_node.out)
    agent_node.reap(1)


def test_it_tells_its_state_every_beat(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP)
    for _ in range(5):
        agent_node.acknowledge()
        agent_node.wait(BEAT_S)
        assert [member.state for member in agent_node.said.members] == [MemberState.UP] * 2


# ---------------------------------------------------------------------------------------------- the dead


@pytest.mark.parametrize(
    ("before", "how", "after"),
    [
        (MemberState.UP, {"exit_code": 0}, MemberState.DONE),
        (MemberState.GOING, {"exit_code": 0}, MemberState.DONE),
        (MemberState.PREPARED, {"exit_code": 0}, MemberState.FAILED),
        (MemberState.BOOTING, {"exit_code": 0}, MemberState.FAILED),
        (MemberState.UP, {"exit_code": 3}, MemberState.FAILED),
        (MemberState.UP, {"signal": 9}, MemberState.FAILED),
        (MemberState.BOOTING, {"signal": 11}, MemberState.FAILED),
        (MemberState.UP, {}, MemberState.FAILED),
    ],
)
def test_what_becomes_of_the_dead(
    agent_node: AgentNode, before: MemberState, how: dict[str, int], after: MemberState
) -> None:
    agent_node.to(before)
    agent_node.die(0, **how)
    assert agent_node.agent.state(0) is after
    told = agent_node.said.members[0]
    assert told.exit is not None
    assert bool(told.start_failed) is (how == {"exit_code": 0} and after is MemberState.FAILED)
    agent_node.wait(2.0)
    agent_node.learn(WorkerUp(attempt=1, rank=1))
    assert agent_node.said.members[0].age_s == pytest.approx(2.0)


@pytest.mark.parametrize("how", [{"exit_code": 1}, {"signal": 15}, {"signal": 9}, {"exit_code": 143}])
def test_an_exit_after_intent_is_stopped_and_never_failed(agent_node: AgentNode, how: dict[str, int]) -> None:
    agent_node.to(MemberState.UP)
    agent_node.stop(1)
    agent_node.die(0, **how)
    told = agent_node.said.members[0]
    assert told.state is MemberState.STOPPED
    assert told.exit is not None
    assert told.exit.after_stop


def test_a_worker_that_could_not_start(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.BOOTING)
    agent_node.live.pop(1)
    agent_node.learn(WorkerStartFailed(attempt=1, rank=1, reason="no such file"))
    assert (agent_node.said.members[1].state, agent_node.said.members[1].start_failed) == (
        MemberState.FAILED,
        "no such file",
    )


def test_facts_of_an_older_attempt_are_nobodys(agent_node: AgentNode) -> None:
    agent_node.to(MemberState.UP, attempt=1)
    agent_node.stop(1)
    agent_node.reap(1)
    agent_node.to(MemberState.BOOTING, attempt=2)
    agent_node.learn(WorkerUp(attempt=1, rank=0))
    agent_node.learn(WorkerPrepared(attempt=1, rank=0, pid=7))
    agent_node.learn(AllReaped(attempt=1))
    assert agent_node.agent.state(0) is MemberState.BOOTING
    assert agent_node.agent.stopped == 1


@pytest.fixture
def second(agent_node: AgentNode) -> AgentNode:
    """A node whose first attempt is over."""
    agent_node.to(MemberState.UP, attempt=1)
    agent_node.stop(1)
    agent_node.reap(1)
    return agent_node


@pytest.mark.parametrize(
    "end",
    [
        WorkerExited(exit=WorkerExit(role="worker", rank=0, node="here", attempt=1, pid=7, exit_code=1)),
        WorkerStartFailed(attempt=1, rank=0, reason="no such file"),
    ],
    ids=["exit", "failed start"],
)
def test_an_end_that_is_told_late_ends_no_worker_of_the_next_attempt(second: AgentNode, end: Fact) -> None:
    second.to(MemberState.UP, attempt=2)
    second.learn(end)
    assert [member.state for member in second.said.members] == [MemberState.UP] * 2


def test_a_worker_is_not_up_because_one_of_the_attempt_before_was(second: AgentNode) -> None:
    second.to(MemberState.GOING, attempt=2)
    second.learn(WorkerUp(attempt=1, rank=0))
    assert second.agent.state(0) is MemberState.GOING


def test_the_end_of_an_older_attempt_is_not_the_end_of_this_ones_stop(second: AgentNode) -> None:
    second.to(MemberState.UP, attempt=2)
    second.stop(2)
    second.learn(AllReaped(attempt=1))
    assert [member.state for member in second.said.members] == [MemberState.UP] * 2
    second.wait(5.0)
    assert [order.hard for order in second.out if isinstance(order, SignalWorkers)] == [True]


def test_a_late_answer_of_the_workers_before_cuts_no_time_to_save(second: AgentNode) -> None:
    second.to(MemberState.UP, attempt=2)
    second.obey(Stop(attempt=2, reason="preempted", grace_s=5.0, save_s=10.0))
    second.learn(WorkersNotified(attempt=1, listening=()))
    assert not any(isinstance(order, SignalWorkers) for order in second.out)


# ---------------------------------------------------------------------------------------------- anything at all


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pgsabtwurdx"), st.integers(1, 3), st.integers(0, 1)), max_size=50))
def test_whatever_comes_one_attempt_lives_at_a_time(steps: list[tuple[str, int, int]]) -> None:
    """`AgentNode` asserts: never two processes of a rank, never two attempts, never `stopped` too soon."""
    node = AgentNode()
    for what, attempt, rank in steps:
        match what:
            case "p":
                node.obey(Prepare(attempt=attempt, placements=THREE_SEATS))
            case "g":
                node.obey(Go(attempt=attempt))
            case "s":
                node.stop(attempt, grace_s=1.0)
            case "a":
                node.acknowledge(floor=attempt - 2)
            case "b":
                node.acknowledge(sent=node.now - 10.0 * attempt)
            case "t":
                node.wait(2.0)
            case "w":
                node.wait(40.0)
            case "u":
                node.learn(WorkerUp(attempt=attempt, rank=rank))
            case "r":
                node.learn(WorkerPrepared(attempt=attempt, rank=rank, pid=7))
            case "d" if rank in node.live:
                node.die(rank, signal=11)
            case "x" if node.agent.attempt and node.agent.stopping.intended:
                node.reap(node.agent.attempt)
    assert {node.agent.state(rank) for rank in node.live} <= ALIVE


def soft(out: list[Instruction]) -> list[tuple[int, bool]]:
    return [(order.signal, order.hard) for order in out if isinstance(order, SignalWorkers)]


def test_a_signal_of_the_owners_comes_first_and_sigterm_at_half_of_the_grace() -> None:
    agent = Agent("here", boot=1)
    agent.obey(Prepare(attempt=1, placements=THREE_SEATS), 0.0)
    assert soft(agent.obey(Stop(attempt=1, reason="Ctrl-C", grace_s=10.0, signal=2), 1.0)) == [(2, False)]
    assert agent.next_wake() == 6.0
    assert soft(agent.tick(6.0)) == [(15, False)]
    assert agent.next_wake() == 11.0
    assert soft(agent.tick(11.0)) == [(15, True)]
    assert agent.next_wake() is None


def test_nothing_is_sent_first_where_the_workers_have_it_already() -> None:
    """It may turn out while the first signal is held back; said again, it changes nothing."""
    agent = Agent("here", boot=1)
    agent.obey(Prepare(attempt=1, placements=THREE_SEATS), 0.0)
    held = Stop(attempt=1, reason="SIGTERM", grace_s=10.0, signal=15, hold_s=0.1)
    assert soft(agent.obey(held, 1.0)) == []
    assert agent.next_wake() == 1.1
    told = Stop(attempt=1, reason="SIGTERM", grace_s=10.0, signal=0)
    assert soft(agent.obey(told, 1.05)) == [(0, False)]
    assert soft(agent.obey(told, 2.05)) == []
    assert agent.next_wake() == 6.05
    assert soft(agent.tick(6.05)) == [(15, False)]


def test_a_signal_that_was_held_back_is_sent_when_the_time_is_over() -> None:
    agent = Agent("here", boot=1)
    agent.obey(Prepare(attempt=1, placements=THREE_SEATS), 0.0)
    agent.obey(Stop(attempt=1, reason="SIGTERM", grace_s=10.0, signal=15, hold_s=0.1), 1.0)
    assert soft(agent.tick(1.1)) == [(15, False)]
    assert agent.next_wake() == 11.1, "SIGTERM is not sent twice"


def test_a_second_ctrl_c_kills_while_the_first_is_held_back() -> None:
    agent = Agent("here", boot=1)
    agent.obey(Prepare(attempt=1, placements=THREE_SEATS), 0.0)
    agent.obey(Stop(attempt=1, reason="Ctrl-C", grace_s=10.0, signal=2, hold_s=0.1), 1.0)
    agent.obey(Stop(attempt=1, reason="Ctrl-C", grace_s=0.0, signal=2), 1.05)
    assert [hard for _, hard in soft(agent.tick(1.05))] == [True]


def test_what_lives_when_its_platform_kills_is_killed_before_that() -> None:
    """However long its saving and its grace may be otherwise."""
    agent = Agent("here", boot=1)
    agent.obey(Prepare(attempt=1, placements=THREE_SEATS), 0.0)
    stop = Stop(attempt=1, reason="scancel", grace_s=30.0, save_s=6.0, within_s=8.0)
    assert soft(agent.obey(stop, 1.0)) == []
    assert agent.next_wake() == 7.0
    assert soft(agent.tick(7.0)) == [(15, False)]
    assert agent.next_wake() == 9.0, "not 37"
    assert soft(agent.tick(9.0)) == [(15, True)]


def test_a_later_word_of_the_platforms_only_shortens() -> None:
    agent = Agent("here", boot=1)
    agent.obey(Prepare(attempt=1, placements=THREE_SEATS), 0.0)
    agent.obey(Stop(attempt=1, reason="preempted", grace_s=20.0, save_s=15.0, within_s=20.0), 0.0)
    agent.obey(Stop(attempt=1, reason="preempted", grace_s=4.0, save_s=3.0, within_s=4.0), 5.0)
    assert agent.next_wake() == 8.0
    agent.obey(Stop(attempt=1, reason="preempted", grace_s=20.0, save_s=15.0, within_s=20.0), 6.0)
    assert soft(agent.tick(8.0)) == [(15, False)]
    assert agent.next_wake() == 9.0
