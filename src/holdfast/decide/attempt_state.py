"""All state of one attempt, in one object that is thrown away with it.

The gang keeps nothing about an attempt anywhere else: so an old failure cannot reach a new attempt. Other files read
the fields and call the methods; only this file writes the fields (`tests/project/test_tidy.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from signal import Signals

import msgspec

from holdfast.decide.attempt_members import AttemptMembers
from holdfast.model.actions import RunHooks
from holdfast.model.check_results import ChecksTaken
from holdfast.model.evidence import (
    SAME_SIGNAL_S,
    AttemptEvidence,
    CheckFailure,
    Deadline,
    HangEvidence,
    LeftBehind,
    MemoryKill,
    StopRequest,
    StopSource,
    WorkerEvidence,
)
from holdfast.model.exit_report import Evidence, ExitReport
from holdfast.model.faults import ActiveFault
from holdfast.model.gang_protocol import Meeting, MemberState, Peers
from holdfast.model.job_spec import NodeInfo, Seat
from holdfast.model.progress_facts import Count, Sign


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of a drained attempt's end."""

    report: ExitReport
    evidence: AttemptEvidence
    progressed: bool
    step: int | None
    counts: tuple[Count, ...] = ()
    signs: tuple[Sign, ...] = ()


class AttemptState:
    """One attempt as the owner knows it. Times are seconds on the clock of `now`."""

    def __init__(
        self,
        attempt: int,
        started_at: float,
        waited: dict[str, float] | None = None,
        *,
        roster: Callable[[tuple[Seat, ...]], AttemptMembers] = AttemptMembers,
    ) -> None:
        self.attempt = attempt
        self.started_at = started_at
        self._parts: dict[str, float] = dict(waited or {})
        self.parts: Mapping[str, float] = self._parts
        """Where its time went: seconds, by phase."""
        self.round = 1
        self.asked: frozenset[str] = frozenset()
        """The nodes that this round of checks asked."""
        self.meet_on = ""
        """The node that this round was given as rank 0's."""
        self.meeting: Meeting | None = None
        """Where its workers meet, where there are several nodes."""
        self.ports: Mapping[str, int] = {}
        """How many ports each node was asked to reserve in this round."""
        self.peers: Peers | None = None
        """Where its tasks are reached; None: the job does not ask for it."""
        self._make_roster = roster
        self.roster = roster(())
        self.nodes: tuple[str, ...] = ()
        """The nodes on which it may live: those of its seats, or all, where the owner has forgotten its beginning."""
        self._addresses: dict[str, str] = {}
        self.told_unsaved = False
        self.forgotten = False
        """The owner does not know any more where it was placed."""
        self.secured = False
        """Every event up to its placement survives a power cut."""
        self.sent = False
        """Its PREPARE has been sent."""
        self.failed_in = ""
        """The phase in which it failed; empty while it has not."""
        self.deadline = Deadline.NONE
        self.late: tuple[int, ...] = ()
        """The ranks that were not ready at the deadline."""
        self.late_words: tuple[str, ...] = ()
        """For the first of these: which rank it is, and what its node last reported about it."""
        self.suspect = ""
        """The event of a failure that only blames a peer, while the gang waits for that peer's own report."""
        self.reason = ""
        self.stop: StopRequest | None = None
        """The request that ended the attempt, where nothing else had ended it before."""
        self.stop_asked_at: float | None = None
        self.go_at: float | None = None
        self.drained_at: float | None = None
        """When the last process of the attempt was gone."""
        self.found: Conclusion | None = None
        """The cause of its end, once it has drained and its evidence is there."""
        self.grace_s = 0.0
        self.save_s = 0.0
        self.kill_by: float | None = None
        """The latest moment at which its live processes are killed, as its platform would do it."""
        self.signal = int(Signals.SIGTERM)
        """The first signal that its workers get; 0: none, they already got a signal from outside."""
        self.hold_s = 0.0
        self.completed = False
        self.collecting = False
        self.unkillable = False
        self._lost: dict[str, LeftBehind] = {}
        self.lost: Mapping[str, LeftBehind] = self._lost
        self._left: set[str] = set()
        self.left: AbstractSet[str] = self._left
        """The nodes that have left for good."""
        self._silent_since: dict[str, float] = {}
        """When each of its silent nodes was last heard."""
        self.cut_off = ""
        """The owner's own node, where all others fell silent at once."""
        self._fenced: set[str] = set()
        self.fenced: AbstractSet[str] = self._fenced
        self._spoke: dict[str, float] = {}
        self.spoke: Mapping[str, float] = self._spoke
        """When each node of this attempt last reported a change; since the owner came back, if it did."""
        self._undrained: list[str] = []
        """Nodes that may still have to drain; read from the end, so that a drain counts each node once."""
        self.hang: HangEvidence | None = None
        self.check: CheckFailure | None = None
        self.checks: ChecksTaken | None = None
        self._faults: list[ActiveFault] = []
        self.faults: Sequence[ActiveFault] = self._faults
        self._said: list[Evidence] = []
        self.said: Sequence[Evidence] = self._said
        """What the platform reports about its nodes and the job."""
        self.hooks: RunHooks | None = None
        """The hooks after the attempt, until the nodes have answered."""
        self.resumed = ""
        """Why the job goes on in another run, where the end of the run before has ended this attempt."""

    def charge(self, part: str, seconds: float) -> None:
        """Add seconds to a part of the attempt's time."""
        self._parts[part] = self._parts.get(part, 0.0) + seconds

    # ------------------------------------------------------------------------------------------ its checks and seats

    def begin_round(self, nodes: Iterable[str], meet_on: str, ports: Mapping[str, int]) -> None:
        """The checks of this round are asked for. `meet_on`: rank 0's node; `ports`: how many each node reserves."""
        self.asked, self.meet_on, self.ports = frozenset(nodes), meet_on, ports

    def next_round(self) -> None:
        """Ask anew, without the node or device that failed: that is not the cause of the attempt's end."""
        self.check = None
        self._lost.clear()
        self.repeat_round()

    def repeat_round(self) -> None:
        self.round += 1

    def take_checks(self, taken: ChecksTaken | None, meeting: Meeting | None) -> None:
        """The checks have answered. `meeting`: where its workers meet, if they passed."""
        self.checks, self.meeting = taken, meeting

    def fail_check(self, failure: CheckFailure | None) -> None:
        self.check = failure

    def reach_peers(self, peers: Peers | None) -> None:
        self.peers = peers

    def seat(self, seats: tuple[Seat, ...], addresses: Mapping[str, str]) -> None:
        """Where its ranks are. `addresses`: of nodes, by name; empty where there is one."""
        self.roster = self._make_roster(seats)
        self.nodes = self.roster.nodes
        self._addresses = dict(addresses)
        self._undrained[:] = self.nodes

    def mark_secured(self) -> None:
        self.secured = True

    def mark_sent(self) -> None:
        self.sent = True

    def mark_told_unsaved(self) -> None:
        self.told_unsaved = True

    def let_go(self, now: float) -> None:
        """All its workers are prepared, and get their GO."""
        self.go_at = now

    # ------------------------------------------------------------------------------------------ its nodes and troubles

    def hear(self, node: str, now: float) -> None:
        """The node's agent has reported at `now`."""
        self._spoke[node] = now

    def forget_agents(self) -> None:
        """The owner was away: it trusts no state of a member until its agent is heard."""
        self.roster.forget()
        self._spoke.clear()

    def fall_silent(self, node: str, since: float) -> None:
        self._silent_since.setdefault(node, since)

    def leave(self, node: str) -> None:
        """The node has left for good."""
        self._left.add(node)

    def fence(self, node: str) -> None:
        """No process lives on the node any more."""
        self._fenced.add(node)

    def suspect_peer(self, event: str) -> None:
        """A failure blames a peer. `event`: what reported it."""
        self.suspect = event

    def hang_found(self, evidence: HangEvidence) -> None:
        self.hang = evidence

    def add_fault(self, fault: ActiveFault) -> None:
        self._faults.append(fault)

    def add_said(self, words: Evidence) -> None:
        """The platform reports something about its nodes or the job."""
        self._said.append(words)

    def miss_deadline(self, deadline: Deadline, late: Sequence[int], words: Iterable[str]) -> None:
        """These ranks were not ready in time. `words`: for the first of them, what its node last reported about it."""
        self.deadline, self.late, self.late_words = deadline, tuple(late), tuple(words)

    # ------------------------------------------------------------------------------------------ its stop

    def complete(self) -> None:
        """The completion policy is met."""
        self.completed = True

    def fail_in(self, phase: str, reason: str) -> None:
        self.failed_in, self.reason = phase, reason

    def end_by(self, request: StopRequest | None) -> None:
        """This request ends the attempt; None: its own trouble does."""
        self.stop = request

    def plan_stop(self, reason: str, grace_s: float, save_s: float, asked_at: float) -> None:
        """Its workers are to stop. Times: how long they may take after the signal, and to save before it."""
        self.reason, self.stop_asked_at = reason, asked_at
        self.shorten_stop(grace_s, save_s)

    def shorten_stop(self, grace_s: float, save_s: float) -> None:
        self.grace_s, self.save_s = grace_s, save_s

    def cut(self, words: str, drained_s: float, queued_s: float) -> None:
        """Its run of the job is over, and every process with it. `words`: why the job goes on in another run."""
        self.charge("draining", drained_s)
        self._parts["queued"] = queued_s
        self.resumed = words
        self._fenced.update(self.nodes)
        self._undrained.clear()
        self.hooks = None

    def has_drained(self, is_stopped: Callable[[str], bool]) -> bool:
        """Whether each of its nodes has stopped all its processes. A node that has is not looked at again."""
        while self._undrained and is_stopped(self._undrained[-1]):
            self._undrained.pop()
        return not self._undrained

    def outlive_kill(self) -> None:
        """Some of its processes could not be killed."""
        self.unkillable = True

    def collect(self, now: float) -> None:
        """Its last process is gone, and its evidence is asked for."""
        self.collecting, self.drained_at = True, now

    def find(self, found: Conclusion) -> None:
        self.found = found

    def run_hooks(self, hooks: RunHooks | None) -> None:
        """These hooks run after the attempt; None: they are over."""
        self.hooks = hooks

    def drain_again(self, nodes: tuple[str, ...]) -> None:
        """More than the owner knew of has to be stopped: it may live on these nodes, and on any that joins later."""
        self.forgotten = True
        self.nodes = nodes
        self._undrained[:] = self.nodes
        self.collecting = False
        self.found = None

    def ask_with(self, request: StopRequest) -> None:
        """Which signal the workers get: a signal to holdfast reaches them unchanged, and only once."""
        if request.source in (StopSource.SIGNAL, StopSource.PLATFORM) and request.signal is not None:
            self.signal, self.hold_s = 0 if request.everywhere else request.signal, request.hold_s

    def limit(self, request: StopRequest, now: float) -> None:
        """Kill the live processes of the attempt by then: the platform would do it."""
        if request.within_s is not None:
            self.kill_by = min(now + request.within_s, self.kill_by or float("inf"))

    def died_of(self, request: StopRequest) -> bool:
        """Whether the attempt died of this signal, reported only now: the workers got it too."""
        fallen = self.roster.failed()
        if request.source is StopSource.PLATFORM and request.at is not None and request.everywhere:
            # Holdfast had to ask for its meaning. A worker that ended meanwhile ended because of it: also a rank whose
            # helper it killed, and one that lost a peer which it had killed.
            exits = [known.exit for known in fallen if known.exit is not None]
            at = [end.ended_at for end in exits if end.ended_by == request.signal and end.ended_at is not None]
            begun = min([request.at, *(when for when in at if when >= request.at - SAME_SIGNAL_S)])
            since = [end for end in exits if end.ended_by == request.signal or (end.ended_at or 0.0) >= begun]
            return bool(fallen) and len(since) == len(fallen)
        signals = {known.exit.ended_by if known.exit is not None else None for known in fallen}
        return bool(fallen) and request.signal is not None and signals == {request.signal}

    def lose(
        self,
        node: str,
        silent_s: float,
        why: str = "",
        *,
        back: bool = False,
        words_s: tuple[float, ...] = (),
        memory_kill: MemoryKill | None = None,
    ) -> None:
        ranks = tuple(known.seat.rank for known in self.roster.on(node))
        self._lost[node] = LeftBehind(
            node=node,
            silent_s=silent_s,
            ranks=ranks,
            why=why,
            back=back,
            words_s=words_s,
            gone=node in self.left,
            memory_kill=memory_kill,
        )

    def find_cut_off(self, known: Mapping[str, NodeInfo], at_once_s: float) -> None:
        """Note the owner's own node, where all others fell silent at once: one link failed, not these nodes.

        With two machines it is unknown whose link it was.
        """
        since = self._silent_since
        others = [node for node in self.roster.nodes if not known[node].here]
        self.cut_off = ""
        if len(others) < 2 or any(node not in since or node not in self.lost for node in others):
            return
        moments = [since[node] for node in others]
        if max(moments) - min(moments) <= at_once_s:
            self.cut_off = next((name for name, node in known.items() if node.here), "the owner's machine")

    def nodes_of(self, ranks: Sequence[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.roster.members[rank].seat.node for rank in ranks))

    def quiet(self, *, preparing: bool) -> tuple[str, ...]:
        """Nodes that have not reported since the owner came back.

        While the attempt is prepared, an agent that was heard but has not begun is present: the owner repeats PREPARE,
        which has a deadline of its own.
        """
        quiet = self.nodes_of(self.roster.unheard())
        return tuple(node for node in quiet if node not in self.spoke) if preparing else quiet

    def done(self) -> frozenset[int]:
        return frozenset(rank for rank, known in self.roster.members.items() if known.state is MemberState.DONE)

    def evidence(self, phase: str, job: str) -> AttemptEvidence:
        """What the owner itself knows; the loop adds logs and what the machine reports."""
        workers = tuple(
            WorkerEvidence(
                role=known.seat.role,
                rank=known.seat.rank,
                node=known.seat.node,
                exit=known.exit,
                start_failed=known.start_failed,
                warm=known.warm,
                listened=known.listened,
            )
            for known in self.roster.members.values()
        )
        return AttemptEvidence(
            attempt=self.attempt,
            workers=workers,
            stop=self.stop,
            faults=tuple(self.faults),
            lost=tuple(self.lost.values()),
            cut_off=self.cut_off,
            hang=self.hang,
            check=self.check,
            phase=self.failed_in or phase,
            deadline=self.deadline,
            late=self.late,
            late_words=self.late_words,
            job=job,
            meeting=f"{self.meeting.address}:{self.meeting.port}" if self.meeting is not None else "",
            addresses=self._addresses,
            stop_asked_at=self.stop_asked_at,
            grace_s=None if self.stop_asked_at is None else self.grace_s,
            platform=tuple(self.said),
        )
