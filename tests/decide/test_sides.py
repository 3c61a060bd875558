"""Owner and node: what goes over the link between them, and to which node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from holdfast.decide.phases import Phase
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.launch.worker_output_options import parse_std
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.gang_protocol import Member, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import JobSpec, NodeInfo, Role
from holdfast.model.noun_base import Message
from holdfast.node.report_writer import ReportWriter
from holdfast.owner.control_server import OPENS_S
from holdfast.owner.job_records import JobRecords
from holdfast.owner.owner_side import OwnerPrinter, OwnerSide
from holdfast.reactor import Reactor
from holdfast.record.job_directory import claim
from holdfast.record.journal import Journal
from holdfast.report.brief_report import render_brief
from holdfast.report.failure_place import FailurePlace
from holdfast.wire.in_process_link import InProcess
from holdfast.wire.node_messages import Moved, ReadFaults

if TYPE_CHECKING:
    from holdfast.wire.link_interface import Request

R = TypeVar("R", bound=Message)
NODES = (NodeInfo(name="a", slots=1), NodeInfo(name="b", slots=1))


class Table:
    """The real owner of a job on two nodes; what it sends to each is laid on the table."""

    def __init__(self, home: Path) -> None:
        self.now = 1000.0
        self.sent: dict[str, list[Request]] = {"a": [], "b": []}
        self.said: list[str] = []
        spec = JobSpec(name="j", roles=(Role(name="worker", count=2, command=("x",)),))
        place = claim(home, name="j", now=self.now)
        launch = LaunchSpec(
            render=lambda report, **_: render_brief(report, FailurePlace()),
            spec=spec,
            home=home,
            cwd=home,
            environment={},
            checks=None,
            redirects=parse_std("0"),
            tee=parse_std("0"),
        )
        self.reactor = Reactor(lambda: self.now)
        self.records = JobRecords(place, self.reactor.now, self.writer, self.said.append)
        self.link = InProcess()
        printer = OwnerPrinter(self.said.append, lambda line, now: None)
        self.owner = OwnerSide(launch, self.reactor, self.link, self.records, lambda now: iter(()), printer)
        self.link.join(self.owner.report, {name: sent.append for name, sent in self.sent.items()})
        self.records.begin(launch, self.now, host="a")
        self.place = place
        self.owner.begin([ev.JobSubmitted(job_id=place.job_id, spec=spec, nodes=NODES, seed=1)])

    def writer(self) -> ReportWriter:
        raise AssertionError("no attempt has ended")

    def take(self, node: str, kind: type[R]) -> list[R]:
        """What of this kind was sent to a node since the last look."""
        found: list[R] = [request for request in self.sent[node] if isinstance(request, kind)]
        self.sent[node][:] = [request for request in self.sent[node] if not isinstance(request, kind)]
        return found

    def hear(self, node: str, state: MemberState) -> None:
        """A node's agent reports its one worker."""
        self.now += 0.1
        rank = 0 if node == "a" else 1
        members = (Member(rank=rank, state=state),)
        self.link.report(Report(node=node, boot=1, attempt=1, stopped=0, sent=self.now, members=members, term=1))
        self.owner.take(None)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    table = Table(tmp_path)
    yield table
    table.owner.close()
    table.reactor.close()
    table.place.lock.release()


def prepared(table: Table) -> None:
    (check,) = table.take("a", RunChecks)
    table.link.report(ev.ChecksFinished(attempt=1, round=check.round, state=CheckState.PASS))
    table.owner.take(None)


def test_every_node_is_asked_for_its_checks(table: Table) -> None:
    assert len(table.take("a", RunChecks)) == len(table.take("b", RunChecks)) == 1


def test_a_node_gets_its_own_seats_and_no_others(table: Table) -> None:
    prepared(table)
    placements = {
        node: [placement.node for order in table.take(node, Prepare) for placement in order.placements]
        for node in table.sent
    }
    assert placements == {"a": ["a"], "b": ["b"]}


def test_a_node_knows_the_phase_before_it_is_asked_for_anything_in_it(table: Table) -> None:
    prepared(table)
    kinds = [type(request) for request in table.sent["b"]]
    assert kinds.index(Moved) < kinds.index(Prepare)
    (*_, last) = table.take("b", Moved)
    assert last.view.phase is Phase.PREPARING
    assert [placement.node for placement in last.view.placements] == ["a", "b"]


def test_a_stop_reaches_every_node_that_has_workers(table: Table) -> None:
    prepared(table)
    for node in table.sent:
        table.hear(node, MemberState.PREPARED)
    request = StopRequest(reason="enough", source=StopSource.OPERATOR, at=table.now)
    table.link.report(ev.StopRequested(request=request))
    table.owner.take(None)
    assert [len(table.take(node, Stop)) for node in table.sent] == [1, 1]


def test_what_a_node_reports_is_written_before_anything_follows_from_it(table: Table) -> None:
    prepared(table)
    table.hear("b", MemberState.PREPARED)
    with Reading(table.place.home) as journal:
        *_, (_, last) = journal.events(table.place.job_id)
    assert isinstance(last, ev.AgentReported) and last.report.node == "b"


def test_news_of_the_fault_log_go_to_the_nodes(table: Table) -> None:
    from holdfast.wire.fault_news import FaultsLine

    table.now += OPENS_S
    table.reactor.wait(table.owner.take, longest_s=0.0)
    assert table.owner.control.started and table.owner.control.take(FaultsLine()).ok
    assert [len(table.take(node, ReadFaults)) for node in table.sent] == [1, 1]


class Reading:
    def __init__(self, home: Path) -> None:
        self._journal = Journal.open(home)

    def __enter__(self) -> Journal:
        return self._journal

    def __exit__(self, *_: object) -> None:
        self._journal.close()
