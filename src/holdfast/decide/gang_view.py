"""A frozen snapshot of the gang's state, for displays."""

from __future__ import annotations

from typing import assert_never

import msgspec

from holdfast.decide import node_assembly
from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_state import AttemptState
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import Phase
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import MemberState
from holdfast.model.job_spec import Placement
from holdfast.model.noun_base import At, Noun

#: A sentence gives the role and the node of at most this many missing ranks.
FEW = 3
#: A sentence names at most this many ranks or nodes.
NAMED = 8


class MemberView(Noun, frozen=True, kw_only=True):
    """The state of one rank of the present attempt, as part of a `GangView`."""

    placement: Placement = msgspec.field(name="seat")
    #: The rank's last reported state; None: no agent has reported the rank since the attempt began, or since the owner
    #: restarted.
    state: MemberState | None = None
    exit: WorkerExit | None = None


class GangView(Noun, frozen=True, kw_only=True):
    """The state of a gang at one moment. Times are seconds on the owner's clock."""

    job_id: str = ""
    phase: Phase
    attempt: int
    #: When the present attempt began, in seconds on the owner's clock.
    started_at: At = 0.0
    #: Whether the completion policy is met, so that the remaining workers are being stopped.
    completed: bool = False
    members: tuple[MemberView, ...] = ()
    #: The nodes and devices that this job avoids.
    avoid: frozenset[str] = frozenset()
    #: The condition for the end of the phase, in words; empty in RUNNING and DONE.
    waits_for: str = ""
    next_wake: At | None = None
    term: int = 1
    #: Whether an attempt has begun and has not ended.
    pending: bool = False
    #: The reason for the request to start the job again, in the phase QUEUED; else empty.
    asked: str = ""

    @property
    def running(self) -> int | None:
        """The number of the present attempt if its phase is RUNNING; else None."""
        return self.attempt if self.phase is Phase.RUNNING else None

    @property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(member.placement for member in self.members)


def view_of(gang: GangState, agents: AgentRegistry, next_wake: float | None) -> GangView:
    """Return the present state of a job. `gang`: the job's state; `agents`: the facts about the agents. `next_wake`:
    when the gang needs its next `Tick`, in seconds.
    """
    attempt_state = gang.attempt_state
    undrained = tuple(node for node in attempt_state.nodes if not agents.is_stopped(node))
    if gang.phase is Phase.PREPARING:
        undrained = tuple(agents.outlived(gang.attempt))
    return GangView(
        job_id=gang.job_id,
        phase=gang.phase,
        attempt=gang.attempt,
        started_at=attempt_state.started_at,
        completed=attempt_state.completed,
        members=tuple(
            MemberView(placement=known.placement, state=known.state, exit=known.exit)
            for known in attempt_state.roster.members.values()
        ),
        avoid=frozenset(gang.avoid),
        waits_for=node_assembly.waits_for(gang)
        if gang.phase is Phase.ASSEMBLING
        else waits_for(gang.phase, attempt_state, undrained=undrained, unheard=frozenset(agents.unheard), due=gang.due),
        next_wake=next_wake,
        term=gang.term,
        pending=gang.pending,
        asked=gang.asked.reason if gang.asked is not None else "",
    )


def waits_for(
    phase: Phase, attempt_state: AttemptState, *, undrained: tuple[str, ...], unheard: frozenset[str], due: float
) -> str:
    """Return the condition for the end of the gang's phase, in words.

    `undrained`: the nodes that may still have processes. `unheard`: the nodes that have not reported since the owner
    restarted. `due`: when the pause ends. `attempt_state`: the attempt's state.
    """
    match phase:
        case Phase.CHECKING:
            return "the pre-checks"
        case Phase.PREPARING if not attempt_state.sent and unheard:
            return f"a first word of {_named(sorted(unheard))} since the owner came back"
        case Phase.PREPARING if not attempt_state.sent and undrained:
            return f"the last process of an older attempt on {_named(undrained)}"
        case Phase.PREPARING if not attempt_state.sent:
            return "the journal, which has to be on its disk first"
        case Phase.PREPARING:
            return f"{_who(attempt_state, attempt_state.roster.missing(MemberState.PREPARED))} to be ready"
        case Phase.STARTING:
            late = attempt_state.roster.missing(MemberState.UP, MemberState.DONE, MemberState.FAILED)
            return f"{_who(attempt_state, late)} to come up" if late else "a peer's own word about a failure"
        case Phase.DRAINING if attempt_state.hooks is not None:
            return f"the hooks after the attempt on {_named(attempt_state.hooks.nodes)}"
        case Phase.DRAINING if attempt_state.found is not None:
            return "the decision"
        case Phase.DRAINING if attempt_state.collecting:
            return "the evidence of its end"
        case Phase.DRAINING:
            return f"the last process on {_named(undrained)}" if undrained else "late evidence of a fenced node"
        case Phase.BACKOFF:
            return f"the end of the pause, at {due:.1f}"
        case Phase.QUEUED:
            return "the platform, which is to start the job again"
        case Phase.ASSEMBLING | Phase.RUNNING | Phase.DONE:
            return ""
        case _:
            assert_never(phase)


def _who(attempt_state: AttemptState, ranks: tuple[int, ...]) -> str:
    """Return `rank 1 (trainer 1 on gpu-2)` for each rank; for many ranks return only the numbers. `attempt_state`: the
    attempt's state.
    """
    placements = [attempt_state.roster.members[rank].placement for rank in ranks[: FEW + 1]]
    if len(placements) > FEW:
        return f"ranks {_named([str(rank) for rank in ranks])}"
    return ", ".join(
        f"rank {placement.rank} ({placement.role} {placement.role_rank} on {placement.node})"
        for placement in placements
    )


def _named(names: list[str] | tuple[str, ...]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
