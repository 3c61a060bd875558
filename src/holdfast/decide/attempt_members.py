"""The members of an attempt: its ranks, and what the owner knows about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import MemberState, Report
from holdfast.model.human_format import ranks
from holdfast.model.job_spec import JobSpec, Placement, shapes

FINISHED = frozenset({MemberState.DONE, MemberState.FAILED, MemberState.STOPPED})
#: The states of a rank that exited on its own, not because of a stop.
ENDED = frozenset({MemberState.DONE, MemberState.FAILED})
#: The states of a rank that is ready to run. A rank may be past PREPARED already, if the journal lost its last events.
READY = frozenset({MemberState.PREPARED, MemberState.GOING, MemberState.UP, MemberState.DONE})
#: The states of a rank that has obeyed GO. A failed rank is included, because it started before it failed.
GONE = frozenset({MemberState.UP, MemberState.DONE, MemberState.FAILED})


class KnownRank(msgspec.Struct):
    """The owner's knowledge about one rank.

    `state` None: no report about the rank yet, or none since the owner restarted.
    """

    placement: Placement
    state: MemberState | None = None
    exit: WorkerExit | None = None
    start_failed: str = ""
    warm: bool = False
    listened: bool = False

    @property
    def fate(self) -> str:
        """The end of the rank in words: `worker rank 1 (pid 4242) on node-3: SIGKILL`."""
        who = f"{self.placement.role} rank {self.placement.rank}"
        if self.start_failed:
            return f"{who} on {self.placement.node} could not start: {self.start_failed}"
        if self.exit is None:
            return f"{who} on {self.placement.node} vanished"
        return f"{who} (pid {self.exit.pid}) on {self.placement.node}: {self.exit.how}"


def fates(fallen: Sequence[KnownRank]) -> list[str]:
    """Return one line for each failed rank. Ranks of one role and node with the same end share a line, which shows the
    pid of the first.
    """
    alike: dict[tuple[str, str, str], list[KnownRank]] = {}
    for known in fallen:
        how = known.start_failed or (known.exit.how if known.exit is not None else "")
        alike.setdefault((known.placement.role, known.placement.node, how), []).append(known)
    lines: list[str] = []
    for first, *rest in alike.values():
        also = f" ({ranks([known.placement.rank for known in rest])} alike)" if rest else ""
        lines.append(first.fate + also)
    return lines


class AttemptMembers:
    """The members of one attempt. Callers pass in only reports of this attempt."""

    def __init__(self, placements: tuple[Placement, ...]) -> None:
        """`placements`: the placement of each rank."""
        self.placements = placements
        self.members = {placement.rank: KnownRank(placement=placement) for placement in placements}
        self._on: dict[str, list[KnownRank]] = {}
        #: Role → how many members are in each state. Each report updates the numbers, because counting a large gang
        #: anew is slow.
        self._count: dict[str, Counter[MemberState | None]] = {}
        for known in self.members.values():
            self._on.setdefault(known.placement.node, []).append(known)
            self._count.setdefault(known.placement.role, Counter())[known.state] += 1
        self.nodes: tuple[str, ...] = tuple(self._on)
        self.shapes = shapes(placements)
        self._sent: dict[tuple[str, int], float] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._on

    def _put(self, known: KnownRank, state: MemberState | None) -> None:
        count = self._count[known.placement.role]
        count[known.state] -= 1
        count[state] += 1
        known.state = state

    def last_exit(self, now: float) -> float:
        """Return the time of the latest known exit of a member; `now` if no member has exited."""
        exits = [known.exit for known in self.members.values() if known.exit is not None]
        return min(now, max((end.ended_at for end in exits if end.ended_at is not None), default=now))

    def take(self, report: Report, now: float) -> list[KnownRank]:
        """Apply an agent's report. Return the members that have newly failed, in the order of their deaths.

        Ignore the report if a later one of the same agent came first. Otherwise an ended member would come back to
        life.
        """
        key = (report.node, report.boot)
        if report.sent < self._sent.get(key, float("-inf")):
            return []
        self._sent[key] = report.sent
        fallen: list[KnownRank] = []
        for member in report.members:
            known = self.members.get(member.rank)
            if known is None or known.placement.node != report.node or known.state in FINISHED:
                continue
            if known.state is not member.state:
                self._put(known, member.state)
            known.start_failed = member.start_failed
            known.warm, known.listened = member.warm, member.listened
            if member.exit is not None:
                # the report has no time of death for the worker, only the seconds since the death
                undated = member.died_at is None
                known.exit = replace(member.exit, ended_at=now - member.age_s) if undated else member.exit
            if member.state is MemberState.FAILED:
                fallen.append(known)
        return sorted(fallen, key=lambda known: known.exit.order if known.exit else 0)

    def forget(self) -> None:
        """Forget the states of all members that can still change, after a restart of the owner."""
        self._sent.clear()
        for known in self.members.values():
            if known.state not in FINISHED:
                self._put(known, None)

    def on(self, node: str) -> Iterator[KnownRank]:
        return iter(self._on.get(node, ()))

    def all_ready(self) -> bool:
        return self._in(READY) == len(self.members)

    def all_gone(self) -> bool:
        return self._in(GONE) == len(self.members)

    def all_done_on(self, node: str) -> bool:
        return all(known.state is MemberState.DONE for known in self.on(node))

    def all_ended(self) -> bool:
        return self._in(ENDED) == len(self.members)

    def _in(self, states: Iterable[MemberState]) -> int:
        return sum(count[state] for count in self._count.values() for state in states)

    def missing(self, *states: MemberState) -> tuple[int, ...]:
        """Return the ranks whose state is none of `states`."""
        return tuple(rank for rank, known in self.members.items() if known.state not in states)

    def in_state(self, *states: MemberState | None) -> tuple[int, ...]:
        """Return the ranks whose state is one of `states`; None stands for an unknown state."""
        return tuple(rank for rank, known in self.members.items() if known.state in states)

    def unheard(self) -> tuple[int, ...]:
        """Return the ranks of unknown state: no agent has reported them since the attempt began, or since the owner
        restarted.
        """
        return tuple(rank for rank, known in self.members.items() if known.state is None)

    def failed(self) -> tuple[KnownRank, ...]:
        return tuple(known for known in self.members.values() if known.state is MemberState.FAILED)

    def verdict(self, spec: JobSpec) -> bool | None:
        """Apply the job's completion policy to the ranks' states.

        Return True: the job is complete; False: the attempt failed; None: not decided yet.
        """
        for role in spec.roles:
            count = self._count.get(role.name, Counter())
            failed, succeeded = count[MemberState.FAILED], count[MemberState.DONE]
            policy = role.completion
            if policy.min_failed is not None and failed >= policy.min_failed:
                return False
            if policy.min_succeeded is not None and succeeded >= policy.min_succeeded:
                return True
        if not self.all_ended():
            # Not decided yet: a rank still runs, or holdfast stopped it. A stopped rank counts neither as success nor
            # as failure.
            return None
        return self._in((MemberState.DONE,)) > 0
