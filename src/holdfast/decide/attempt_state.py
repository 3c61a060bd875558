"""All state of one attempt, in one object that is discarded with the attempt.

The gang keeps no other state of an attempt, so an old failure cannot affect a new attempt. Other files read the fields
and call the methods; only this file writes the fields (`tests/project/test_tidy.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from signal import Signals

import msgspec
from msgspec.structs import replace

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
    StopRequest,
    StopSource,
    WorkerEvidence,
)
from holdfast.model.exit_report import Evidence, ExitReport
from holdfast.model.faults import ActiveFault
from holdfast.model.gang_protocol import Meeting, MemberState, Peers
from holdfast.model.job_spec import NodeInfo, Placement
from holdfast.model.progress_facts import Count, Sign


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The explained end of an attempt: its report, its evidence, and its signs of progress (a further step, a new
    checkpoint).
    """

    report: ExitReport
    evidence: AttemptEvidence
    progressed: bool
    step: int | None
    counts: tuple[Count, ...] = ()
    signs: tuple[Sign, ...] = ()


class AttemptState:
    """The owner's state of one attempt. Times are seconds on the clock of `now`.

    `started_at`: when the attempt began. `waited`: phase → seconds spent in it before the attempt. `roster`: builds the
    attempt's members from the placement of its ranks.
    """

    def __init__(
        self,
        attempt: int,
        started_at: float,
        waited: dict[str, float] | None = None,
        *,
        roster: Callable[[tuple[Placement, ...]], AttemptMembers] = AttemptMembers,
    ) -> None:
        self.attempt = attempt
        self.started_at = started_at
        self._parts: dict[str, float] = dict(waited or {})
        #: Phase (its name in lower case) → the seconds that the attempt spent in it so far.
        self.parts: Mapping[str, float] = self._parts
        self.round = 1
        #: The nodes that take part in the present round of checks.
        self.asked: frozenset[str] = frozenset()
        #: The node of rank 0, as planned while the checks run.
        self.meet_on = ""
        #: MASTER_ADDR and MASTER_PORT for the workers; None while the checks run, and in a job on one node.
        self.meeting: Meeting | None = None
        #: Node → the number of ports that it must reserve in the present round of checks.
        self.ports: Mapping[str, int] = {}
        #: The addresses of the attempt's tasks; None: the job does not use them.
        self.peers: Peers | None = None
        self._make_roster = roster
        self.roster = roster(())
        #: The nodes that may have processes of the attempt: the nodes of its ranks, or all nodes if it is `forgotten`.
        self.nodes: tuple[str, ...] = ()
        self._addresses: dict[str, str] = {}
        self.told_unsaved = False
        #: Whether the journal has lost the attempt's start. The owner then does not know the attempt's nodes.
        self.forgotten = False
        #: Whether the journal's events up to the placement of the ranks are on disk, safe from a power cut.
        self.secured = False
        #: Whether the owner has sent PREPARE to the nodes.
        self.sent = False
        #: The phase in which the attempt failed; empty: the attempt has not failed.
        self.failed_in = ""
        self.deadline = Deadline.NONE
        #: The ranks that missed the deadline of a phase.
        self.late: tuple[int, ...] = ()
        #: A clause for each of the first late ranks: its name, and its state in the last report of its node.
        self.late_words: tuple[str, ...] = ()
        #: The event about a failed worker that only blames a peer; else empty. The gang then waits for the peer's
        #: report.
        self.suspect = ""
        self.reason = ""
        #: The stop request that ended the attempt; None: a failure or a success ended it.
        self.stop: StopRequest | None = None
        self.stop_asked_at: float | None = None
        self.go_at: float | None = None
        #: When the last process of the attempt ended.
        self.drained_at: float | None = None
        #: The explained end of the attempt; None until all its processes have exited and its evidence has arrived.
        self.found: Conclusion | None = None
        self.grace_s = 0.0
        self.save_s = 0.0
        #: Seconds until SIGTERM for processes that exited workers left running; None: they get SIGTERM at once.
        self.leftover_s: float | None = None
        #: When the platform kills all processes of the job; None: unknown. The agents kill them before that time.
        self.kill_by: float | None = None
        #: The first signal to the workers; 0: no signal, because something other than holdfast has already signalled
        #: them.
        self.signal = int(Signals.SIGTERM)
        self.hold_s = 0.0
        self.completed = False
        self.collecting = False
        self.unkillable = False
        self._lost: dict[str, LeftBehind] = {}
        self.lost: Mapping[str, LeftBehind] = self._lost
        self._left: set[str] = set()
        #: The nodes of the attempt that have left for good.
        self.left: AbstractSet[str] = self._left
        #: Silent node → when its agent last reported.
        self._silent_since: dict[str, float] = {}
        #: The owner's node, if all other nodes fell silent at once; else empty. The owner's own network link has then
        #: failed.
        self.cut_off = ""
        self._fenced: set[str] = set()
        self.fenced: AbstractSet[str] = self._fenced
        self._spoke: dict[str, float] = {}
        #: Node → when its agent last reported a change to this owner. A restart of the owner clears it.
        self.spoke: Mapping[str, float] = self._spoke
        #: Nodes that may still have live processes. `has_drained` removes nodes from the end of the list, so that it
        #: checks each node once.
        self._undrained: list[str] = []
        self.hang: HangEvidence | None = None
        self.check: CheckFailure | None = None
        self.checks: ChecksTaken | None = None
        self._faults: list[ActiveFault] = []
        self.faults: Sequence[ActiveFault] = self._faults
        self._said: list[Evidence] = []
        #: The answers of the platform (Slurm or Kubernetes) about this job and the attempt's nodes, as evidence.
        self.said: Sequence[Evidence] = self._said
        #: The hooks that the nodes run after the attempt; None if no node runs any.
        self.hooks: RunHooks | None = None
        #: Why the job continues in another run, if the end of the run has ended this attempt; else empty.
        self.resumed = ""

    def charge(self, part: str, seconds: float) -> None:
        """Add seconds to one part of the attempt's recorded time, such as a phase."""
        self._parts[part] = self._parts.get(part, 0.0) + seconds

    # -------------------------------------------------------------------------------- recording checks and placements

    def begin_round(self, nodes: Iterable[str], meet_on: str, ports: Mapping[str, int]) -> None:
        """Begin a round of checks on `nodes`. `meet_on`: the node of rank 0. `ports`: node → how many ports it must
        reserve.
        """
        self.asked, self.meet_on, self.ports = frozenset(nodes), meet_on, ports

    def next_round(self) -> None:
        """Begin another round of checks without the failed node or device.

        Its failure is then no longer the cause of the attempt's end.
        """
        self.check = None
        self._lost.clear()
        self.repeat_round()

    def repeat_round(self) -> None:
        self.round += 1

    def take_checks(self, taken: ChecksTaken | None, meeting: Meeting | None) -> None:
        """Record the result of the checks. `taken`: the state of each check. `meeting`: MASTER_ADDR and MASTER_PORT, if
        all checks passed.
        """
        self.checks, self.meeting = taken, meeting

    def fail_check(self, failure: CheckFailure | None) -> None:
        self.check = failure

    def reach_peers(self, peers: Peers | None) -> None:
        self.peers = peers

    def place(self, placements: tuple[Placement, ...], addresses: Mapping[str, str]) -> None:
        """Assign the ranks to nodes and devices. `addresses`: node → its address; empty if the job has one node.
        `placements`: the placement of each rank.
        """
        self.roster = self._make_roster(placements)
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
        """Record that all workers are prepared, so that the owner sends GO."""
        self.go_at = now

    # -------------------------------------------------------------------------------- recording nodes and failures

    def hear(self, node: str, now: float) -> None:
        """Record that the agent of a node has reported at `now`."""
        self._spoke[node] = now

    def forget_agents(self) -> None:
        """Forget the states of live workers after a restart of the owner. Their agents report them again."""
        self.roster.forget()
        self._spoke.clear()

    def fall_silent(self, node: str, since: float) -> None:
        """Record a silent node. `since`: when its agent last reported."""
        self._silent_since.setdefault(node, since)

    def leave(self, node: str) -> None:
        """Record that the node has left and will not come back."""
        self._left.add(node)

    def fence(self, node: str) -> None:
        """Record that no process of the job can be alive on the node any more."""
        self._fenced.add(node)

    def suspect_peer(self, event: str) -> None:
        """Record the failure of a worker that only blames a peer. `event`: the event that reported the failure."""
        self.suspect = event

    def hang_found(self, evidence: HangEvidence) -> None:
        self.hang = evidence

    def add_fault(self, fault: ActiveFault) -> None:
        self._faults.append(fault)

    def add_said(self, words: Evidence) -> None:
        """Add an answer of the platform, about the job or one of the attempt's nodes, to the evidence."""
        self._said.append(words)

    def miss_deadline(self, deadline: Deadline, late: Sequence[int], words: Iterable[str]) -> None:
        """Record that the ranks in `late` missed a deadline.

        `words`: a clause about the last known state of each of the first of them.
        """
        self.deadline, self.late, self.late_words = deadline, tuple(late), tuple(words)

    # ---------------------------------------------------------------------------- recording the stop

    def complete(self) -> None:
        """Record that the job's completion policy is met."""
        self.completed = True

    def fail_in(self, phase: str, reason: str) -> None:
        self.failed_in, self.reason = phase, reason

    def end_by(self, request: StopRequest | None) -> None:
        """Record the stop request that ends the attempt; None: a failure of the attempt ends it."""
        self.stop = request

    def plan_stop(
        self, reason: str, grace_s: float, save_s: float, asked_at: float, leftover_s: float | None = None
    ) -> None:
        """Plan the stop.

        `reason`: why, for the user; `asked_at`: when the stop began; `save_s`: seconds to save before the signal;
        `grace_s`: seconds between the signal and SIGKILL; `leftover_s`: seconds until SIGTERM for processes that exited
        workers left running; None: at once.
        """
        self.reason, self.stop_asked_at = reason, asked_at
        self.shorten_stop(grace_s, save_s)
        self.leftover_s = leftover_s

    def shorten_stop(self, grace_s: float, save_s: float) -> None:
        """Shorten the stop to at most these times. Processes that exited workers left running get SIGTERM now.
        `grace_s`: seconds between the signal and SIGKILL. `save_s`: seconds to save before the signal.
        """
        self.grace_s, self.save_s, self.leftover_s = grace_s, save_s, None

    def cut(self, words: str, drained_s: float, queued_s: float) -> None:
        """Record that the attempt has ended with all its processes, because its run of the job has ended.

        `words`: why the job continues in another run. `drained_s`, `queued_s`: the seconds in DRAINING and in QUEUED.
        """
        self.charge("draining", drained_s)
        self._parts["queued"] = queued_s
        self.resumed = words
        self._fenced.update(self.nodes)
        self._undrained.clear()
        self.hooks = None

    def has_drained(self, is_stopped: Callable[[str], bool]) -> bool:
        """Return whether the attempt has no process left on any node. A node for which `is_stopped(node)` was True is
        not checked again.
        """
        while self._undrained and is_stopped(self._undrained[-1]):
            self._undrained.pop()
        return not self._undrained

    def outlive_kill(self) -> None:
        """Record that some processes could not be killed."""
        self.unkillable = True

    def collect(self, now: float) -> None:
        """Record that the attempt's last process has ended, and that its evidence is requested."""
        self.collecting, self.drained_at = True, now

    def find(self, found: Conclusion) -> None:
        self.found = found

    def run_hooks(self, hooks: RunHooks | None) -> None:
        """Record the hooks that run after the attempt; None: they have ended."""
        self.hooks = hooks

    def drain_again(self, nodes: tuple[str, ...]) -> None:
        """Wait again for the end of all processes. The attempt may have unknown processes on these nodes, and on nodes
        that join later.
        """
        self.forgotten = True
        self.nodes = nodes
        self._undrained[:] = self.nodes
        self.collecting = False
        self.found = None

    def ask_with(self, request: StopRequest) -> None:
        """Choose the first signal to the workers.

        If holdfast received a signal, the workers get the same one. If the workers received it too, holdfast sends
        none.
        """
        if request.source in (StopSource.SIGNAL, StopSource.PLATFORM) and request.signal is not None:
            self.signal, self.hold_s = 0 if request.everywhere else request.signal, request.hold_s

    def limit(self, request: StopRequest, now: float) -> None:
        """Store when the platform will kill all processes, if the request says that."""
        if request.within_s is not None:
            self.kill_by = min(now + request.within_s, self.kill_by or float("inf"))

    def died_of(self, request: StopRequest) -> bool:
        """Return whether the signal in this request also ended the failed workers. They may have failed before the
        owner learned the signal's meaning.
        """
        fallen = self.roster.failed()
        if request.source is StopSource.PLATFORM and request.at is not None and request.everywhere:
            # The platform takes time to say what the signal means. Meanwhile a worker may have died of the signal, or
            # of the death of its helper process or of a peer. So count a worker that died of the signal, or exited
            # after it.
            exits = [known.exit for known in fallen if known.exit is not None]
            at = [end.ended_at for end in exits if end.ended_by == request.signal and end.ended_at is not None]
            begun = min([request.at, *(when for when in at if when >= request.at - SAME_SIGNAL_S)])
            since = [end for end in exits if end.ended_by == request.signal or (end.ended_at or 0.0) >= begun]
            return bool(fallen) and len(since) == len(fallen)
        signals = {known.exit.ended_by if known.exit is not None else None for known in fallen}
        return bool(fallen) and request.signal is not None and signals == {request.signal}

    def lose(self, lost: LeftBehind) -> None:
        """Record a lost node and its ranks."""
        ranks = tuple(known.placement.rank for known in self.roster.on(lost.node))
        self._lost[lost.node] = replace(lost, ranks=ranks, gone=lost.node in self.left)

    def find_cut_off(self, known: Mapping[str, NodeInfo], at_once_s: float) -> None:
        """Set `cut_off` if all other nodes fell silent at once, because then the owner's network link has failed.

        With only two machines either link may have failed, so `cut_off` stays empty. `at_once_s`: the most seconds
        between the first and the last silence. `known`: all nodes of the job.
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
        return tuple(dict.fromkeys(self.roster.members[rank].placement.node for rank in ranks))

    def quiet(self, *, preparing: bool) -> tuple[str, ...]:
        """Return the nodes with ranks that no agent has reported since the owner restarted.

        `preparing`: whether the phase is PREPARING. Then leave out nodes whose agents have reported, even without
        workers: the owner repeats PREPARE to them, and the phase has a deadline.
        """
        quiet = self.nodes_of(self.roster.unheard())
        return tuple(node for node in quiet if node not in self.spoke) if preparing else quiet

    def done(self) -> frozenset[int]:
        return frozenset(rank for rank, known in self.roster.members.items() if known.state is MemberState.DONE)

    def evidence(self, phase: str, job: str) -> AttemptEvidence:
        """Return the owner's evidence about the attempt's end. The nodes add their logs and host facts later."""
        workers = tuple(
            WorkerEvidence(
                role=known.placement.role,
                rank=known.placement.rank,
                node=known.placement.node,
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
