"""The owner of one job: its gang, the detection of silent nodes, acknowledgements, recovery after a crash. Pure.

Both a real run and the simulation host this owner. The host passes in every report (`hear`), and fetches due events at
`next_wake` (`due`). The host writes each event to the journal before the owner handles it (`expect`, then the gang's
`handle`), and performs the resulting actions. After a crash it replays the journal into a new owner (`recover`).

A report becomes an event only if it changes something. Ten thousand agents send two thousand heartbeats a second, so
the owner acknowledges a heartbeat without news and forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from holdfast.decide.gang import Gang
from holdfast.decide.liveness import Liveness
from holdfast.model import events as ev
from holdfast.model.actions import Action, Send
from holdfast.model.gang_protocol import Ack, Member, Report

#: The assumed difference between the speeds of two clocks: 1 %. Real clocks differ far less.
CREEP = 0.01


class AgentClocks:
    """Converts the times of worker deaths from an agent's clock to the owner's clock. `wire/message_ages.py` converts
    all other times.

    The clocks of two machines are never compared directly. A report has its sending time on the agent's clock, and the
    seconds since each worker ended. The network's delay makes a death look later than it was. So the owner assumes the
    smallest delay of all the agent's reports, and a slow report does not postpone a death.
    """

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, int], tuple[float, float]] = {}

    def learn(self, report: Report, now: float) -> None:
        """Update the smallest delay with a report that arrived at `now` (seconds).

        The smallest delay may also grow slowly, because no two clocks run at exactly the same speed.
        """
        key, seen = (report.node, report.boot), now - report.sent
        least, at = self._ahead.get(key, (seen, now))
        self._ahead[key] = (min(seen, least + CREEP * (now - at)), now)

    def dated(self, report: Report, now: float) -> Report:
        """Return the report with the times of deaths on the owner's clock. Call `learn` with this report first."""
        if all(member.exit is None for member in report.members):
            return report
        ahead, _ = self._ahead[report.node, report.boot]
        return replace(report, members=tuple(_dated(member, report.sent + ahead, now) for member in report.members))


def _dated(member: Member, sent_at: float, now: float) -> Member:
    ended = member.exit
    if ended is None:
        return member
    died_at = min(now, sent_at) - member.age_s
    lasted_s = (
        None if ended.started_at is None or ended.ended_at is None else max(0.0, ended.ended_at - ended.started_at)
    )
    dated = replace(ended, ended_at=died_at, started_at=None if lasted_s is None else died_at - lasted_s)
    return replace(member, exit=dated, died_at=died_at)


def acknowledge(gang: Gang, report: Report) -> Ack:
    """Return the acknowledgement of a report. It renews the agent's lease, counted from the sending of the report, and
    names the last ended attempt.
    """
    return Ack(sent=report.sent, floor=gang.floor(report.node), term=gang.term)


class Owner:
    """Connects the gang with the journal and the agents.

    `liveness`: detects silent nodes. None: the owner and the agent share a process, so the owner acknowledges no
    reports. `clocks`: converts the times of deaths to the owner's clock.
    """

    def __init__(
        self,
        gang: Gang,
        liveness: Liveness | None = None,
        *,
        clocks: AgentClocks | None = None,
        acknowledge: Callable[[Gang, Report], Ack] = acknowledge,
    ) -> None:
        """`acknowledge`: builds the acknowledgement of a report; tests replace it."""
        self.gang = gang
        self.liveness = liveness
        self.clocks = clocks or AgentClocks()
        self._acknowledge = acknowledge
        #: Node → the last report of its agent that the owner has handled.
        self.said: dict[str, Report] = {}
        #: (node, silent or fenced) → the (boot, attempt, phase) of the last such event that the gang got.
        self._silences: dict[tuple[str, type[ev.Event]], tuple[object, ...]] = {}

    @property
    def term(self) -> int:
        """The owner's term, a number that rises with each restart of the owner."""
        return self.gang.term

    # --------------------------------------------------------------------------------- handling reports and events

    def hear(self, report: Report, now: float) -> ev.AgentReported | None:
        """Handle a report that arrived at `now` (seconds). Return the event for the gang; None if the report brings
        nothing new.
        """
        if self.gang.agents.is_dead(report.node, report.boot):
            self.gang.count_stale()
            return None  # ignore a report from an agent of an earlier run of the job
        if self.liveness is not None:
            self.liveness.heard(report.node, report.boot, now)
        before = self.said.get(report.node)
        if before is not None and (report.boot, report.sent) < (before.boot, before.sent):
            self.gang.count_stale()
            return None  # ignore this report, because a newer one of the same node came first
        self.clocks.learn(report, now)
        self.said[report.node] = report
        lost = report.node in self.gang.absent and report.node not in self.gang.left
        if before is not None and not lost and _same(before, report) and report.term <= self.gang.term:
            return None
        return ev.AgentReported(report=self.clocks.dated(report, now))

    def welcome(self, joined: ev.NodeJoined) -> ev.NodeJoined | None:
        """Handle an agent's hello, which is its first message. Return the event for the gang; None if the gang already
        knows the node and the agent.

        If an agent only reconnects, its node has not changed.
        """
        gang, node = self.gang, joined.node
        if gang.agents.is_dead(node.name, joined.boot):
            return None
        news = (
            gang.known.get(node.name) != node
            or node.name in gang.absent
            or gang.agents.boots.get(node.name) != joined.boot
            or not gang.avoid >= set(gang.names_on(node.name, (kept.device for kept in joined.kept_out)))
        )
        return joined if news else None

    def heard_at(self, node: str) -> float | None:
        """Return when the node's agent last reported, in seconds on the owner's clock; None: never, or the agent has
        ended.
        """
        return self.liveness.heard_at(node) if self.liveness is not None else None

    def is_lost(self, node: str) -> bool:
        """Return whether a node that had joined is lost: it is silent, or has left."""
        return node in self.gang.absent

    def answer(self, report: Report) -> list[Action]:
        """Return the acknowledgement of a handled report; empty for a report of a replaced agent."""
        if self.liveness is None or self.gang.agents.is_of_before(report):
            return []
        return [Send(node=report.node, command=self._acknowledge(self.gang, report))]

    def expect(self, event: ev.Event, now: float) -> None:
        """Start or stop watching a node because of this event. Call this before the gang handles the event."""
        if self.liveness is None:
            return
        if isinstance(event, ev.JobSubmitted):
            self.liveness.expect((node.name for node in event.nodes), now)
        elif isinstance(event, ev.JobResumed) and event.run > self.gang.run:
            for node in [*self.gang.known]:
                self.liveness.forget(node, self.gang.agents.boots.get(node, 0))
            self.said.clear()
            self.liveness.expect((node.name for node in event.nodes), now)
        elif isinstance(event, ev.NodeJoined) and not self.gang.agents.is_dead(event.node.name, event.boot):
            self.liveness.heard(event.node.name, event.boot, now)
        elif isinstance(event, ev.NodeLeft) and event.fenced:
            self.liveness.forget(event.node, event.boot)

    # --------------------------------------------------------------------------------- handling time

    def next_wake(self) -> float | None:
        """Return when `due` may have an event, in seconds on the clock of `now`; None: only after another event."""
        gang = self.gang.next_wake()
        silence = self.liveness.next_wake() if self.liveness is not None else None
        if gang is None or silence is None:
            return silence if gang is None else gang
        return min(gang, silence)

    def due(self, now: float) -> Iterator[ev.Event]:
        """Yield the due events one by one. The gang must handle each before the caller fetches the next."""
        if self.liveness is not None:
            for event in self.liveness.due(now):
                about = (event.boot, self.gang.attempt, self.gang.phase)
                if self._silences.get((event.node, type(event))) != about:
                    # Report the silence once for each attempt and phase, because a repetition changes nothing.
                    self._silences[event.node, type(event)] = about
                    yield event
        wake = self.gang.next_wake()
        if wake is not None and wake <= now:
            yield ev.Tick()

    # ----------------------------------------------------------------------------- recovery after a crash of the owner

    def recover(self, journal: Iterable[tuple[float, ev.Event]], now: float) -> list[list[Action]]:
        """Replay the journal after a crash, and return the actions of each event. The caller then handles
        `OwnerRecovered`.

        Agents could not reach the owner before its restart, so each gets a whole lease from now on.
        """
        led_to = [self.gang.handle(event, then) for then, event in journal]
        if self.liveness is not None:
            gang = self.gang
            self.liveness.expect(
                (node.name for node in gang.nodes if node.name not in gang.left), now, gang.agents.boots
            )
        return led_to


def _same(one: Report, other: Report) -> bool:
    """Return whether two reports of a node are equal, apart from their sending times."""
    return (
        (one.boot, one.attempt, one.stopped) == (other.boot, other.attempt, other.stopped)
        and len(one.members) == len(other.members)
        and all(map(_alike, one.members, other.members))
    )


def _alike(one: Member, other: Member) -> bool:
    return (one.rank, one.state, one.start_failed) == (other.rank, other.state, other.start_failed) and (
        one.exit is other.exit or one.exit == other.exit
    )
