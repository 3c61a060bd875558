"""The links between nodes: who exchanges data with no other, and which link it is; over real sockets, too."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.decide.queries.link_measurement import (
    ALL_S,
    SIZE,
    WAIT_S,
    LinkMeasurement,
    LinkVerdict,
    Orders,
    with_links,
    worth_measuring,
)
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckLine, ChecksTaken, CheckState
from holdfast.model.events import ChecksFinished
from holdfast.model.gang_protocol import ClosePort, MeasurePeer, OpenPort, PeerMeasured, PortOpen
from holdfast.model.job_spec import JobSpec, NodePlan, Role
from holdfast.node.owner_probes import LinkProbe
from holdfast.observe.link_exchange import PEERS, PeerPort, PeerProbe
from holdfast.owner.node_queries import NodeQueries
from holdfast.reactor import Reactor
from processes import reactor

__all__ = ["reactor"]  # fixtures

LINKS_AT = 1000.0
LINK_TOKEN = "5a" * 16
Works = Callable[[int, int], float | str]


def gpu_nodes(count: int) -> tuple[str, ...]:
    return tuple(f"gpu-{index}" for index in range(count))


def addresses(count: int) -> dict[str, str]:
    return {f"gpu-{index}": f"10.0.0.{index}" for index in range(count)}


def order(count: int) -> RunChecks:
    return RunChecks(attempt=1, round=1, nodes=gpu_nodes(count), checks=None, deadline_s=100.0)


class LinksTable:
    """Nodes whose exchanges take what `works(from, to)` says: seconds, or why they fail. None of a node: no answer."""

    def __init__(
        self, count: int, works: Works, *, silent: tuple[int, ...] = (), portless: tuple[int, ...] = ()
    ) -> None:
        self.now = LINKS_AT
        self.links = LinkMeasurement(order(count), addresses(count), LINK_TOKEN, LINKS_AT)
        self.works = works
        self.silent, self.portless = silent, portless
        self.met: list[tuple[int, int]] = []
        self.waves = 0
        self.closed: set[str] = set()
        self._post(self.links.begin())
        while self.links.verdict is None:
            wake = self.links.next_wake()
            assert wake is not None
            self.now = wake
            self._post(self.links.due(self.now))

    def _post(self, orders: Orders) -> None:
        for node, each in orders:
            here = int(node.removeprefix("gpu-"))
            if isinstance(each, ClosePort):
                self.closed.add(node)
            if here in self.silent:
                continue
            match each:
                case OpenPort() if here in self.portless:
                    self._post(self.links.hear(node, PortOpen(attempt=1, round=1, trouble="no port is left"), self.now))
                case OpenPort():
                    self._post(self.links.hear(node, PortOpen(attempt=1, round=1, port=4000 + here), self.now))
                case MeasurePeer():
                    peer = each.port - 4000
                    assert each.address == f"10.0.0.{peer}"
                    self.met.append((here, peer))
                    self._post(self.links.hear(node, self._measured(each, here, peer), self.now))
                case _:
                    pass

    def _measured(self, asked: MeasurePeer, here: int, peer: int) -> PeerMeasured:
        took = self.works(here, peer)
        number = asked.number
        if isinstance(took, str):
            return PeerMeasured(attempt=1, round=1, number=number, trouble=took)
        return PeerMeasured(attempt=1, round=1, number=number, round_trip_s=0.0002, exchange_s=took)


def verdict(count: int, works: Works, **how: Any) -> LinkVerdict:
    found = LinksTable(count, works, **how).links.verdict
    assert found is not None
    return found


def all_work(here: int, peer: int) -> float | str:
    return 0.01


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 1000])
def test_where_all_links_work_every_node_meets_two_others(count: int) -> None:
    table = LinksTable(count, all_work)
    found = table.links.verdict
    assert found is not None and (found.failure, found.avoid, found.warnings) == (None, (), ())
    met = {node: {a + b - node for a, b in table.met if node in (a, b)} for node in range(count)}
    assert min(len(others) for others in met.values()) == min(2, count - 1)
    assert len(table.met) <= count + 1
    assert table.closed == set(gpu_nodes(count))
    assert found.line.state == "passed" and "0.2 ms for a round trip" in found.line.message


@pytest.mark.parametrize("count", [3, 4, 7, 40])
def test_a_node_that_exchanges_data_with_no_other_is_named_and_left_out(count: int) -> None:
    found = verdict(count, lambda here, peer: "Connection refused" if 2 in (here, peer) else 0.01)
    assert found.avoid == ("gpu-2",) and found.failure is not None
    assert found.failure.nodes == ("gpu-2",) and found.failure.elsewhere
    assert found.failure.message.startswith("gpu-2 (10.0.0.2) exchanges no data with gpu-")
    assert found.failure.message.endswith("Connection refused")


def test_several_bad_nodes_are_named() -> None:
    found = verdict(12, lambda here, peer: "No route to host" if {3, 8} & {here, peer} else 0.01)
    assert found.avoid == ("gpu-3", "gpu-8")


def test_a_link_that_fails_is_named_and_leaves_no_node_out() -> None:
    found = verdict(6, lambda here, peer: "Connection timed out" if {here, peer} == {0, 1} else 0.01)
    assert (found.failure, found.avoid) == (None, ())
    assert found.warnings == (
        (
            "links: gpu-0 (10.0.0.0) and gpu-1 (10.0.0.1) exchange no data, and each works with another node: the link "
            "between them: Connection timed out"
        ),
    )


def test_a_node_that_can_only_connect_works() -> None:
    """Behind a firewall that lets nothing in: the other direction is tried."""
    found = verdict(4, lambda here, peer: "Connection timed out" if peer == 1 else 0.01)
    assert (found.failure, found.warnings) == (None, ())


def test_a_node_that_can_open_no_port_connects_to_others() -> None:
    found = verdict(4, all_work, portless=(0, 1))
    assert found.avoid == () and all("gpu-0 (10.0.0.0) and gpu-1" in text for text in found.warnings)


def test_a_slow_exchange_is_a_warning() -> None:
    found = verdict(8, lambda here, peer: 2.0 if 5 in (here, peer) else 0.01)
    assert (found.failure, found.avoid) == (None, ())
    assert found.warnings and all("gpu-5" in text and "2000 ms" in text for text in found.warnings)


def test_where_no_two_nodes_work_a_firewall_is_likely_and_none_is_left_out() -> None:
    table = LinksTable(9, lambda here, peer: "Connection refused")
    found = table.links.verdict
    assert found is not None and (found.failure, found.avoid) == (None, ())
    (only,) = found.warnings
    assert only.startswith("links: no two of 9 nodes exchange data") and "--port-range" in only
    assert len(table.met) < 200


def test_of_two_nodes_alone_it_cannot_be_told() -> None:
    found = verdict(2, lambda here, peer: "Connection refused")
    assert (found.failure, found.avoid, len(found.warnings)) == (None, (), 1)


def test_a_node_that_gives_no_answer_is_named_in_bounded_time_and_its_lease_decides() -> None:
    table = LinksTable(5, all_work, silent=(4,))
    found = table.links.verdict
    assert found is not None and (found.avoid, found.failure) == ((), None)
    assert found.warnings == (f"links: gpu-4 (10.0.0.4) gave no answer within {WAIT_S:g} s",)
    assert table.now <= LINKS_AT + ALL_S


def test_an_answer_of_another_round_counts_nothing() -> None:
    links = LinkMeasurement(order(2), addresses(2), LINK_TOKEN, LINKS_AT)
    links.begin()
    for node in gpu_nodes(2):
        assert links.hear(node, PortOpen(attempt=1, round=9, port=1), LINKS_AT) == []
    assert links.verdict is None and links.next_wake() == LINKS_AT + WAIT_S


def checks_passed(state: CheckState = CheckState.PASS, *, reused: bool = False) -> ChecksFinished:
    lines = (CheckLine(name="disk", state="passed"), CheckLine(name="links", state="passed", message="later"))
    return ChecksFinished(attempt=1, round=1, state=state, taken=ChecksTaken(state=state, checks=lines, reused=reused))


def test_the_round_of_checks_has_what_was_found_of_the_links() -> None:
    good = with_links(checks_passed(), verdict(4, all_work))
    assert good.state is CheckState.PASS and good.taken is not None
    assert [line.name for line in good.taken.checks] == ["disk", "links"] and "round trip" in good.taken.checks[
        1
    ].message
    bad = with_links(checks_passed(), verdict(4, lambda here, peer: "refused" if 2 in (here, peer) else 0.01))
    assert (bad.state, bad.avoid, bad.fatal) == (CheckState.FAIL, ("gpu-2",), False)
    assert bad.taken is not None and bad.taken.checks[1].state == "failed"


def test_only_fresh_passes_of_several_nodes_are_followed_by_exchanges() -> None:
    assert worth_measuring(checks_passed(), order(2))
    assert not worth_measuring(checks_passed(), order(1))
    assert worth_measuring(checks_passed(reused=True), order(2)), "no round has measured them"
    assert not worth_measuring(checks_passed(reused=True), order(2), order(3).nodes)
    assert worth_measuring(checks_passed(reused=True), order(3), order(2).nodes), "a spare has come"
    assert worth_measuring(checks_passed(), order(2), order(2).nodes)
    assert not worth_measuring(checks_passed(CheckState.FAIL), order(2))
    assert not worth_measuring(checks_passed(CheckState.DISABLED), order(2))


# ------------------------------------------------------------------------------------------ real sockets


def opened(reactor: Reactor, *, token: str = LINK_TOKEN, wait_s: float = 5.0) -> PeerPort:
    return PeerPort(OpenPort(attempt=1, round=1, token=token, size=SIZE, wait_s=wait_s), reactor, iter((0,)))


def measured(reactor: Reactor, port: int, *, token: str = LINK_TOKEN, wait_s: float = 5.0) -> PeerMeasured:
    answers: list[PeerMeasured] = []
    asked = MeasurePeer(
        attempt=1, round=1, number=7, address="127.0.0.1", port=port, token=token, size=SIZE, wait_s=wait_s
    )
    PeerProbe(asked, reactor, reactor.now(), lambda probe, said: answers.append(said))
    assert answers == [], "the answer comes later"
    while not answers:
        reactor.wait(longest_s=10.0)
    assert len(answers) == 1 and answers[0].number == 7
    return answers[0]


def test_two_agents_exchange_data(reactor: Reactor) -> None:
    port = opened(reactor)
    said = measured(reactor, port.port)
    assert said.trouble == "" and said.round_trip_s > 0 and said.exchange_s > 0
    port.close()
    assert not reactor.watching


def test_a_peer_without_the_token_is_turned_away(reactor: Reactor) -> None:
    port = opened(reactor)
    assert measured(reactor, port.port, token="00" * 16).trouble
    assert measured(reactor, port.port).trouble == ""
    port.close()


def test_a_port_where_no_process_listens_is_refused(reactor: Reactor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    assert measured(reactor, free).trouble == "Connection refused"


def test_a_peer_that_takes_everything_and_says_nothing_is_given_up(reactor: Reactor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        said = measured(reactor, mute.getsockname()[1], wait_s=0.2)
    assert said.trouble == f"0 of {SIZE} bytes came back within 0.2 s"


def test_silent_connections_are_bounded_and_closed(reactor: Reactor) -> None:
    port = opened(reactor, wait_s=0.3)
    silent = [socket.create_connection(("127.0.0.1", port.port)) for _ in range(PEERS + 4)]
    end = reactor.now() + 0.6
    reactor.at(end, lambda now: None)
    while reactor.now() < end:
        reactor.wait()
        assert len(reactor.watching) <= PEERS + 1
    assert len(reactor.watching) == 1
    for link in silent:
        link.close()
    port.close()


def test_a_port_lies_in_the_range(reactor: Reactor) -> None:
    said: list[PortOpen | PeerMeasured] = []
    with socket.create_server(("", 0)) as taken:
        first = taken.getsockname()[1]
        peering = LinkProbe(reactor, (first, first), said.append)
        peering.take(OpenPort(attempt=1, round=1, token=LINK_TOKEN, size=SIZE, wait_s=5.0), reactor.now())
    assert isinstance(said[0], PortOpen) and said[0].port == 0 and "Address already in use" in said[0].trouble
    peering.take(OpenPort(attempt=1, round=2, token=LINK_TOKEN, size=SIZE, wait_s=5.0), reactor.now())
    assert isinstance(said[1], PortOpen) and said[1].port == first
    peering.close()


class ProbedNodes:
    """The owner's questions and the nodes' part, each node with a real port on this machine."""

    def __init__(self, reactor: Reactor, count: int) -> None:
        self.reactor = reactor
        self.heard: list[Any] = []
        self.deaf: set[str] = set()
        spec = JobSpec(
            name="j",
            roles=(Role(name="worker", count=count, command=("x",)),),
            nodes=NodePlan(least=count, most=count),
        )
        self.questions = NodeQueries(self, reactor, spec, self.heard.append, lambda node: "127.0.0.1")
        self.nodes = {
            node: LinkProbe(reactor, None, partial(self.questions.report, node=node)) for node in gpu_nodes(count)
        }

    def send(self, node: str, request: Any) -> None:
        if isinstance(request, OpenPort) and node in self.deaf:
            self.questions.report(PortOpen(attempt=1, round=1, port=9), node)  # discard: no process listens there
        elif node not in self.deaf:
            self.nodes[node].take(request, self.reactor.now())
        elif isinstance(request, MeasurePeer):
            said = PeerMeasured(attempt=1, round=1, number=request.number, trouble="Network is unreachable")
            self.questions.report(said, node)

    def send_all(self, request: Any) -> None:
        for node in self.nodes:
            if isinstance(request, RunChecks):
                self.questions.report(checks_passed(), node)

    def round(self) -> ChecksFinished:
        self.questions.send_all(order(len(self.nodes)))
        while not self.heard:
            self.reactor.wait(longest_s=10.0)
        (only,) = self.heard
        assert isinstance(only, ChecksFinished)
        return only


def test_real_exchanges_between_nodes_follow_their_checks(reactor: Reactor) -> None:
    found = ProbedNodes(reactor, 5).round()
    assert found.state is CheckState.PASS and found.warnings == () and found.taken is not None
    assert found.taken.checks[-1].message.startswith("5 nodes, ")
    assert not reactor.watching, "all ports are closed"


def test_a_node_that_reaches_no_peer_is_left_out(reactor: Reactor) -> None:
    nodes = ProbedNodes(reactor, 4)
    nodes.deaf = {"gpu-1"}
    found = nodes.round()
    assert (found.state, found.avoid) == (CheckState.FAIL, ("gpu-1",))
