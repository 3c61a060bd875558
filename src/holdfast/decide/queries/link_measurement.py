"""Finds nodes, and links between nodes, that do not work. Nodes exchange data in pairs over real connections. Pure.

    links = LinkMeasurement(order, addresses, token, now)    the nodes of a round of checks
    links.hear(node, word, now), links.due(now)              return the commands for nodes, until
    links.verdict                                            has the result

In the first two waves every node exchanges data with its two neighbours in the order of nodes. Then each suspect is
tested with a node that works (`model/pair_search.py`), so that a failure shows which node is bad. A pair that fails is
tried once more in the other direction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.decide.gang_view import NAMED
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckLine, CheckState
from holdfast.model.events import ChecksFinished
from holdfast.model.evidence import CheckFailure
from holdfast.model.gang_protocol import ClosePort, MeasurePeer, OpenPort, PeerMeasured, PortOpen
from holdfast.model.human_format import natural, with_address
from holdfast.model.pair_search import Pair, PairSearch

#: The name by which users select this check.
NAME = "links"
SIZE = 1 << 20
#: Seconds for one exchange of data between two nodes, including the time to open a port and to send the messages.
WAIT_S = 5.0
#: Seconds that the measurement of all links may take.
ALL_S = 20.0
#: The most waves (parallel exchanges between pairs of nodes); more waves find nothing more. If no exchange has worked
#: after two waves, the search ends, except in a small job.
MOST_WAVES = 8
#: An exchange counts as slow if it takes this many times the first quartile of all exchanges. A slow exchange causes a
#: warning.
SLOW_FACTOR = 8.0
SLACK_S = 0.1

Word = PortOpen | PeerMeasured
Order = OpenPort | MeasurePeer | ClosePort
#: Commands of the link measurement, as (node, command).
Orders = list[tuple[str, Order]]


class LinkVerdict(msgspec.Struct, frozen=True):
    """The result of the measurement of links. `avoid`: the nodes that do not work."""

    line: CheckLine
    warnings: tuple[str, ...] = ()
    failure: CheckFailure | None = None
    avoid: tuple[str, ...] = ()


class _Exchange(msgspec.Struct):
    """One exchange of data between two nodes. The second node connects to the first; if `turned`, the first connects to
    the second.
    """

    pair: Pair
    turned: bool = False


class LinkMeasurement:
    """Measures the links between the nodes of one round of checks. Times are seconds on the owner's clock.

    `order`: the request for the checks. `addresses`: node → its address. `token`: the secret by which a node proves to
    its peer that it belongs to the job.
    """

    def __init__(self, order: RunChecks, addresses: Mapping[str, str], token: str, now: float) -> None:
        self._order = order
        # Sort the nodes by name, because nodes with adjacent names mostly have adjacent ranks.
        self._nodes = tuple(sorted(order.nodes, key=natural))
        self._addresses = addresses
        self._token = token
        self._began = now
        self._ends = now + ALL_S
        self._search = PairSearch(len(self._nodes), slow_factor=SLOW_FACTOR, slack_s=SLACK_S)
        self._ports: dict[str, int] = {}
        self._why: dict[Pair, str] = {}
        #: Node → why it could not open a port for its peers.
        self._closed: dict[str, str] = {}
        self._silent: set[str] = set()
        self._last = now
        self._trips: list[float] = []
        self._opening = set(self._nodes)
        self._at_work: dict[int, _Exchange] = {}
        self._number = 0
        self._wave = 0
        self._due = now + WAIT_S
        self.verdict: LinkVerdict | None = None

    def begin(self) -> Orders:
        """Return the command for every node to listen for its peers."""
        return [
            (
                node,
                OpenPort(
                    attempt=self._order.attempt,
                    round=self._order.round,
                    token=self._token,
                    size=SIZE,
                    wait_s=WAIT_S,
                ),
            )
            for node in self._nodes
        ]

    def next_wake(self) -> float | None:
        """Return when to call `due`; None once the verdict exists."""
        return None if self.verdict is not None else min(self._due, self._ends)

    def hear(self, node: str, word: Word, now: float) -> Orders:
        """Handle a node's answer and return the next commands. Ignore an unexpected answer, or one of another round."""
        if self.verdict is not None or (word.attempt, word.round) != (self._order.attempt, self._order.round):
            return []
        match word:
            case PortOpen() if node in self._opening:
                self._opening.remove(node)
                if word.port:
                    self._ports[node] = word.port
                else:
                    self._closed[node] = word.trouble
                return [] if self._opening else self._next(now)
            case PeerMeasured() if word.number in self._at_work:
                return self._measured(word, now)
            case _:
                return []

    def due(self, now: float) -> Orders:
        """Count overdue exchanges as failed, and return the next commands."""
        if self.verdict is not None:
            return []
        self._silent |= self._opening
        for node in self._opening:
            self._closed[node] = f"no answer within {WAIT_S:g} s"
        self._opening.clear()
        for number in tuple(self._at_work):
            self._failed(self._at_work.pop(number).pair, f"no answer within {WAIT_S:g} s")
        self._last = now
        return self._conclude() if now >= self._ends else self._next(now)

    # ----------------------------------------------------------------------------- the waves of exchanges

    def _next(self, now: float) -> Orders:
        """Return the commands for the next pairs of nodes. If no pair is left, make the verdict."""
        orders: Orders = []
        while not self._at_work:
            pairs = self._pairs()
            if not pairs:
                return self._conclude()
            self._due = now + WAIT_S + 1.0
            for pair in pairs:
                if pair not in self._search.times:
                    orders += self._meet(_Exchange(pair))
        return orders

    def _pairs(self) -> list[Pair]:
        self._wave += 1
        count = len(self._nodes)
        if self._wave == 2 and count > 3:
            # In the second wave each node meets its other neighbour. After it every node has been tested with two
            # nodes.
            return [(node, node + 1) for node in range(1, count - 1, 2)] + [(0, count - 1)]
        hopeless = count > MOST_WAVES and self._search.reference_s is None and self._wave > 2
        return [] if hopeless or self._wave > MOST_WAVES else self._search.next_wave()

    def _meet(self, exchange: _Exchange) -> Orders:
        """Return the command for one node of a pair to connect to the other. If neither node has a port, the exchange
        fails.
        """
        for turned in (exchange.turned, not exchange.turned):
            left, right = (self._nodes[index] for index in exchange.pair)
            host, guest = (right, left) if turned else (left, right)
            if host in self._ports and guest not in self._silent:
                self._number += 1
                self._at_work[self._number] = _Exchange(exchange.pair, turned)
                return [(guest, self._measure(host))]
        self._failed(exchange.pair, "neither of them listens")
        return []

    def _measure(self, host: str) -> MeasurePeer:
        return MeasurePeer(
            attempt=self._order.attempt,
            round=self._order.round,
            number=self._number,
            address=self._addresses.get(host, "") or "127.0.0.1",
            port=self._ports[host],
            token=self._token,
            size=SIZE,
            wait_s=WAIT_S,
        )

    def _measured(self, word: PeerMeasured, now: float) -> Orders:
        done = self._at_work.pop(word.number)
        self._last = now
        if not word.trouble:
            self._trips.append(word.round_trip_s)
            self._search.answer(done.pair, word.exchange_s)
        elif not done.turned and self._nodes[done.pair[1]] in self._ports:
            self._why.setdefault(done.pair, word.trouble)
            self._due = now + WAIT_S + 1.0
            return self._meet(_Exchange(done.pair, turned=True))
        else:
            self._failed(done.pair, word.trouble)
        return [] if self._at_work else self._next(now)

    def _failed(self, pair: Pair, why: str) -> None:
        self._why.setdefault(pair, why)
        self._search.answer(pair, None)

    # -------------------------------------------------------------------------- the verdict about the links

    def _conclude(self) -> Orders:
        found = self._search
        failed = [pair for pair, took in found.times.items() if took is None]
        some = {node for pair, took in found.times.items() if took is not None for node in pair}
        silent = {node for node, name in enumerate(self._nodes) if name in self._silent}
        dead = sorted(found.bad - some - silent)
        blamed = {*dead, *silent}
        if len(failed) == len(found.times):
            warnings = [self._none(failed)]
        else:
            # A node without an answer only causes a warning here. Its lease decides whether it is lost.
            warnings = [f"{NAME}: {self._name(node)} gave no answer within {WAIT_S:g} s" for node in sorted(silent)]
            warnings += [self._link(pair) for pair in failed if blamed.isdisjoint(pair)]
            warnings += [self._slow(pair) for pair in found.times if pair not in failed and not found.works(pair)]
        failure = self._bad(dead, failed) if dead else None
        told = failure.message if failure is not None else "; ".join(warnings[:2])
        state = "failed" if failure is not None else "passed with a warning" if warnings else "passed"
        line = CheckLine(
            name=NAME,
            state=state,
            message=told or self._figures(),
            tries=1,
            took_s=round(self._last - self._began, 3),
        )
        self.verdict = LinkVerdict(line, tuple(warnings[:NAMED]), failure, tuple(self._nodes[node] for node in dead))
        close = ClosePort(attempt=self._order.attempt, round=self._order.round)
        return [(node, close) for node in self._nodes]

    def _bad(self, dead: Sequence[int], failed: Sequence[Pair]) -> CheckFailure:
        """Return the failure of the check, with the nodes that could not exchange data with working nodes."""
        said = []
        for node in dead[:NAMED]:
            tried = [(pair, pair[0] if pair[1] == node else pair[1]) for pair in failed if node in pair]
            (pair, other), *_ = sorted(tried, key=lambda one: one[1] in dead)
            said.append(f"{self._name(node)} exchanges no data with {self._name(other)}: {self._reason(node, pair)}")
        first = self._nodes[dead[0]]
        partner = next(node for node in self._search.cleared) if self._search.cleared else dead[0]
        return CheckFailure(
            check=NAME,
            message="; ".join(said),
            solution=f"Test the way on {first}: ping {self._addresses.get(self._nodes[partner], '')}; look at its "
            "interface, its firewall and its switch port. --port-range A-B keeps ports within what a firewall lets "
            "through; --checks without `links` leaves this check out.",
            nodes=tuple(self._nodes[node] for node in dead),
            blame="network",
            elsewhere=True,
        )

    def _none(self, failed: Sequence[Pair]) -> str:
        one, other = (self._name(node) for node in failed[0])
        return (
            f"{NAME}: no two of {len(self._nodes)} nodes exchange data ({one} and {other}: "
            f"{self._why.get(failed[0], 'failed')}): where a firewall stands between them, --port-range A-B keeps the "
            "ports of this check and MASTER_PORT within what it lets through"
        )

    def _link(self, pair: Pair) -> str:
        one, other = (self._name(node) for node in pair)
        known = self._search.cleared.issuperset(pair)
        works = ", and each works with another node: the link between them" if known else ""
        return f"{NAME}: {one} and {other} exchange no data{works}: {self._why.get(pair, 'failed')}"

    def _slow(self, pair: Pair) -> str:
        one, other = (self._name(node) for node in pair)
        took, good = self._search.times[pair] or 0.0, self._search.reference_s or 0.0
        there_and_back = f"{SIZE >> 20} MiB there and back takes {1000 * took:.0f} ms between {one} and {other}"
        return f"{NAME}: {there_and_back}, {1000 * good:.0f} ms between others"

    def _reason(self, node: int, pair: Pair) -> str:
        return self._closed.get(self._nodes[node]) or self._why.get(pair, "failed")

    def _name(self, node: int) -> str:
        name = self._nodes[node]
        return with_address(name, self._addresses.get(name, ""))

    def _figures(self) -> str:
        worked = [took for took in self._search.times.values() if took is not None]
        if not worked or not self._trips:
            return ""
        rate = 2 * SIZE / max(max(worked), 1e-9)
        return (
            f"{len(self._nodes)} nodes, {len(worked)} exchanges: at most {1000 * max(self._trips):.1f} ms for a round "
            f"trip, at least {rate / 1e6:.0f} MB/s"
        )


def worth_measuring(checked: ChecksFinished, order: RunChecks, linked: Collection[str] = ()) -> bool:
    """Return whether to measure the links between nodes after a round of checks.

    All nodes must have passed the checks, and there must be several. If the result comes from an earlier round, measure
    only if a node is not in `linked`. `checked`: the result. `order`: the request for the round. `linked`: the nodes
    whose links were good in the last measurement.
    """
    mine = (checked.attempt, checked.round) == (order.attempt, order.round)
    passed = checked.state is CheckState.PASS and checked.taken is not None
    known = checked.taken is not None and checked.taken.reused and set(order.nodes) <= set(linked)
    return mine and passed and not known and len(order.nodes) > 1


def with_links(checked: ChecksFinished, verdict: LinkVerdict) -> ChecksFinished:
    """Return the result of the round of checks, with the result of the measurement of links added."""
    taken, state = checked.taken, CheckState.FAIL if verdict.failure is not None else checked.state
    if taken is not None:
        others = tuple(line for line in taken.checks if line.name != NAME)
        taken = replace(taken, state=state, checks=(*others, verdict.line))
    return replace(
        checked,
        state=state,
        failure=verdict.failure,
        avoid=verdict.avoid,
        warnings=(*checked.warnings, *verdict.warnings),
        taken=taken,
    )
