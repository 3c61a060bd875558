"""The owner: what becomes an event, how deaths are dated, what is acknowledged, and how it comes back."""

from __future__ import annotations

from typing import TypeVar

import pytest
from decide_builders import LEASES

from gang_play import NODES, spec
from holdfast.decide.gang import Gang
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.actions import Action, CollectEvidence, RunChecks, Say, Secure, Send
from holdfast.model.check_results import CheckState
from holdfast.model.evidence import StopRequest
from holdfast.model.exit_report import Outcome, WorkerExit
from holdfast.model.gang_protocol import Ack, Member, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import NodeInfo

#: The agent of the second node started its clock at another time.
BEHIND = 1000.0


Kind = TypeVar("Kind", Ack, Prepare, Stop)


class Host:
    """Two nodes, one rank each, and a journal in memory."""

    def __init__(self) -> None:
        self.owner = Owner(Gang(), Liveness(LEASES))
        self.now = 100.0
        self.journal: list[tuple[float, ev.Event]] = []
        self.out: list[Action] = []

    def phase(self) -> Phase:
        return self.owner.gang.phase

    def take(self, event: ev.Event) -> None:
        self.journal.append((self.now, event))
        self.owner.expect(event, self.now)
        self.out += self.owner.gang.handle(event, self.now)

    def submit(self) -> None:
        nodes = tuple(NodeInfo(name=name, slots=1) for name in NODES)
        self.take(ev.JobSubmitted(job_id="j", spec=spec(timers=LEASES), nodes=nodes, seed=7))
        self.take(ev.ChecksFinished(attempt=1, round=1, state=CheckState.PASS))
        self.take(ev.JournalSecured(attempt=1))

    def hear(self, node: str, state: MemberState, *, late_s: float = 0.0, **changes: object) -> list[Action]:
        """A report that was `late_s` on its way; returns the answer to it."""
        self.now += 0.01
        clock = self.now - late_s - (BEHIND if node == "b" else 0.0)
        known = {key: changes.pop(key) for key in ("exit", "age_s") if key in changes}
        member = Member(rank=NODES.index(node), state=state, **known)  # type: ignore[arg-type]  # the caller's fields
        fields = {"boot": 1, "attempt": 1, "stopped": 0, "sent": clock, "members": (member,)} | changes
        report = Report(node=node, **fields)  # type: ignore[arg-type]  # the caller's fields
        if (event := self.owner.hear(report, self.now)) is not None:
            self.take(event)
        return self.owner.answer(report)

    def all(self, *states: MemberState) -> None:
        for state in states:
            for node in NODES:
                self.hear(node, state)

    def sleep_until(self, end: float) -> None:
        while (wake := self.owner.next_wake()) is not None and wake <= end:
            self.now = max(self.now, wake)
            for event in self.owner.due(self.now):
                self.take(event)
        self.now = end


@pytest.fixture
def host() -> Host:
    made = Host()
    made.submit()
    made.all(MemberState.BOOTING, MemberState.PREPARED, MemberState.UP)
    assert made.owner.gang.phase is Phase.RUNNING
    return made


def died_by_clock(node: str, clock: float) -> WorkerExit:
    rank = NODES.index(node)
    return WorkerExit(
        role="worker", rank=rank, node=node, attempt=1, pid=7, signal=11, started_at=clock - 4.0, ended_at=clock
    )


def test_a_heartbeat_without_news_is_acknowledged_and_not_written(host: Host) -> None:
    written = len(host.journal)
    for _ in range(100):
        for node in NODES:
            (answer,) = host.hear(node, MemberState.UP)
            assert isinstance(answer, Send)
            assert isinstance(answer.command, Ack)
    assert len(host.journal) == written


def test_heartbeats_keep_a_node_alive_although_they_are_not_written(host: Host) -> None:
    for _ in range(20):
        host.sleep_until(host.now + LEASES.beat_s)
        host.all(MemberState.UP)
    assert host.phase() is Phase.RUNNING


def test_a_silence_is_written_once_for_each_phase(host: Host) -> None:
    host.sleep_until(host.now + LEASES.lease_s + 0.5)
    assert host.phase() is Phase.DRAINING
    host.sleep_until(host.now + 20.0)
    silent = [event for _, event in host.journal if isinstance(event, ev.NodeSilent) and event.node == "a"]
    assert len(silent) == 2, "once while it ran, once while it drained"


def test_a_death_is_dated_by_the_fastest_report_of_its_node_heartbeats_included(host: Host) -> None:
    host.hear("b", MemberState.UP, late_s=0.001)
    died_at = host.now + 1.0
    host.now += 3.0
    clock = died_at - BEHIND
    host.hear("b", MemberState.FAILED, late_s=host.now + 0.01 - died_at, exit=died_by_clock("b", clock))
    known = host.owner.gang.attempt_state.roster.members[1].exit
    assert known is not None
    assert known.ended_at == pytest.approx(died_at, abs=0.1)
    assert known.started_at == pytest.approx(died_at - 4.0, abs=0.1), "the start of it is on the owner's clock too"


def test_the_journal_holds_the_dated_death(host: Host) -> None:
    host.hear("b", MemberState.FAILED, exit=died_by_clock("b", host.now + 0.01 - BEHIND))
    last = [event for _, event in host.journal if isinstance(event, ev.AgentReported)][-1]
    assert last.report.members[0].died_at == pytest.approx(host.now, abs=0.02)


def test_a_report_that_a_later_one_overtook_is_no_news(host: Host) -> None:
    written = len(host.journal)
    host.hear("a", MemberState.PREPARED, late_s=50.0)
    assert len(host.journal) == written


def test_an_agent_of_before_is_not_acknowledged(host: Host) -> None:
    host.hear("a", MemberState.NONE, boot=2, attempt=0, members=())
    assert host.hear("a", MemberState.UP, boot=1) == []


def test_a_late_word_of_an_earlier_agents_end_loses_no_node(host: Host) -> None:
    """The node's power came back, and its next agent has spoken, before its starter told of the loss."""
    host.hear("a", MemberState.UP, boot=2)
    heard_at, phase = host.owner.heard_at("a"), host.phase()
    host.take(ev.NodeLeft(node="a", boot=1, reason="its pod is gone", fenced=True))
    assert host.owner.heard_at("a") == heard_at is not None
    assert not host.owner.is_lost("a")
    assert host.phase() is phase


def test_a_node_that_leaves_is_watched_until_its_workers_are_surely_dead(host: Host) -> None:
    host.take(ev.NodeLeft(node="a", boot=1, reason="its user has ended it"))
    assert host.owner.is_lost("a")
    assert host.owner.heard_at("a") is not None
    host.take(ev.NodeLeft(node="a", boot=1, reason="its pod is gone", fenced=True))
    assert host.owner.heard_at("a") is None


def test_an_owner_that_is_back_hears_each_node_anew_and_goes_on(host: Host) -> None:
    before = host.owner
    host.owner = Owner(Gang(), Liveness(LEASES))
    led_to = host.owner.recover(host.journal, host.now)
    assert len(led_to) == len(host.journal)
    host.take(ev.OwnerRecovered())
    written = len(host.journal)
    host.all(MemberState.UP, MemberState.UP)
    assert len(host.journal) == written + 2
    assert host.phase() is Phase.RUNNING
    assert host.owner.gang.records == before.gang.records


def test_a_node_that_was_lost_while_the_owner_was_away_is_fenced(host: Host) -> None:
    host.hear("a", MemberState.UP, boot=1)
    host.owner = Owner(Gang(), Liveness(LEASES))
    host.owner.recover(host.journal, host.now)
    host.take(ev.StopRequested(request=StopRequest(reason="enough")))
    host.take(ev.OwnerRecovered())
    assert {action.node for action in host.out if isinstance(action, Send) and isinstance(action.command, Stop)}
    host.hear("b", MemberState.STOPPED, stopped=1)
    host.sleep_until(host.now + 40.0)
    assert any(isinstance(action, CollectEvidence) for action in host.out)
    assert not host.owner.gang.attempt_state.unkillable


# ------------------------------------------------------------------------------------------ a journal without its tail


def commands_sent(out: list[Action], kind: type[Kind]) -> list[tuple[str, Kind]]:
    return [
        (action.node, action.command) for action in out if isinstance(action, Send) and isinstance(action.command, kind)
    ]


def back(host: Host, events: int) -> None:
    """The owner is back with the first so many events of its journal."""
    del host.journal[events:], host.out[:]
    host.owner = Owner(Gang(), Liveness(LEASES))
    host.owner.recover(host.journal, host.now)
    host.take(ev.OwnerRecovered())


def test_nothing_is_prepared_before_the_journal_is_synchronized() -> None:
    host = Host()
    nodes = tuple(NodeInfo(name=name, slots=1) for name in NODES)
    host.take(ev.JobSubmitted(job_id="j", spec=spec(timers=LEASES), nodes=nodes, seed=7))
    host.take(ev.ChecksFinished(attempt=1, round=1, state=CheckState.PASS))
    assert [type(action) for action in host.out if not isinstance(action, RunChecks)] == [Secure]
    host.take(ev.JournalSecured(attempt=1))
    assert [node for node, _ in commands_sent(host.out, Prepare)] == list(NODES)


def test_one_machine_waits_for_no_disk() -> None:
    gang = Gang()
    gang.handle(ev.JobSubmitted(job_id="j", spec=spec(), nodes=(NodeInfo(name="a", slots=2),), seed=7), 0.0)
    out = gang.handle(ev.ChecksFinished(attempt=1, round=1, state=CheckState.PASS), 0.0)
    assert commands_sent(out, Prepare)
    assert not any(isinstance(action, Secure) for action in out)


def test_a_journal_that_stays_broken_ends_the_job_with_its_trouble_and_the_last_cause(host: Host) -> None:
    host.hear("b", MemberState.FAILED, exit=died_by_clock("b", host.now + 0.01 - BEHIND))
    for node in NODES:
        host.hear(node, MemberState.STOPPED, stopped=1)
    (asked,) = [action for action in host.out if isinstance(action, CollectEvidence)]
    host.take(ev.EvidenceCollected(attempt=1, evidence=asked.evidence))
    host.sleep_until(host.now)
    host.take(ev.ChecksFinished(attempt=2, round=1, state=CheckState.PASS))
    began = host.now
    while host.phase() is Phase.PREPARING:
        host.hear("a", MemberState.NONE, attempt=1, stopped=1, members=())
        host.hear("b", MemberState.NONE, attempt=1, stopped=1, members=())
        host.sleep_until(host.now + 1.0)
        host.take(ev.JournalSecured(attempt=2, trouble="the disk is full"))
    assert LEASES.owner_wait_s <= host.now - began < LEASES.owner_wait_s + 3.0
    said = [action.text for action in host.out if isinstance(action, Say) and "waits for the journal" in action.text]
    assert len(said) == 1
    assert "the disk is full" in said[0]
    assert not [command for _, command in commands_sent(host.out, Prepare) if command.attempt == 2]
    for node in NODES:
        host.hear(node, MemberState.NONE, attempt=2, stopped=2, members=())
    asked = [action for action in host.out if isinstance(action, CollectEvidence)][-1]
    host.take(ev.EvidenceCollected(attempt=2, evidence=asked.evidence))
    host.sleep_until(host.now)
    report = host.owner.gang.report
    assert report is not None
    assert report.outcome is Outcome.FAILED
    assert "the disk is full" in report.report.reason
    assert "NativeCrash" in report.report.reason


def test_an_attempt_that_the_owner_forgot_is_stopped_everywhere_and_its_number_is_not_used_again(host: Host) -> None:
    back(host, 1)
    assert host.phase() is Phase.CHECKING
    host.hear("b", MemberState.UP, attempt=3)
    assert host.phase() is Phase.DRAINING
    stops = commands_sent(host.out, Stop)
    assert [(node, command.attempt) for node, command in stops] == [("a", 3), ("b", 3)]
    for node in NODES:
        host.hear(node, MemberState.STOPPED, attempt=3, stopped=3)
    (asked,) = [action for action in host.out if isinstance(action, CollectEvidence)]
    host.take(ev.EvidenceCollected(attempt=1, evidence=asked.evidence))
    host.sleep_until(host.now + 2.0)
    assert host.owner.gang.attempt == 4
    (record,) = host.owner.gang.records
    assert not record.decision.charged


def test_a_forgetful_owner_places_nothing_before_every_agent_has_spoken(host: Host) -> None:
    back(host, 1)
    host.hear("a", MemberState.NONE, attempt=0, members=())
    host.take(ev.ChecksFinished(attempt=1, round=2, state=CheckState.PASS))
    assert not commands_sent(host.out, Prepare)
    assert not any(isinstance(action, Secure) for action in host.out)
    host.hear("b", MemberState.UP, attempt=1)
    assert host.phase() is Phase.DRAINING, "the number was used before"


def test_an_owner_that_lost_the_end_of_the_start_goes_on_with_what_runs(host: Host) -> None:
    prepared = next(index for index, (_, event) in enumerate(host.journal) if isinstance(event, ev.JournalSecured))
    back(host, prepared)
    assert host.phase() is Phase.PREPARING
    host.all(MemberState.UP)
    assert host.phase() is Phase.RUNNING


def test_an_owner_goes_beyond_a_term_that_it_does_not_know(host: Host) -> None:
    (answer,) = host.hear("a", MemberState.UP, term=7)
    assert isinstance(answer, Send)
    assert answer.command.term == host.owner.gang.term == 8
