"""The states of the exhaustive search: one owner, two sides, every message ever sent, and the troubles still allowed.

A state is copied before anything changes it. States are compared by a key without the parts that cannot matter later.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

import msgspec

from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.model.job_spec import JobSpec, RestartPolicy, Role, Timers
from holdfast.model.noun_base import Message, Noun

NODES = ("n0", "n1")
EVER = 1e9
#: The index of the node that reacts at once, with `Bounds.prompt`.
PROMPT = 1
NEXT = {"booting": "prepared", "going": "up"}
LEASE_S = 100.0
#: The time between two generations of an agent, in seconds. It is so long that the lease has run out, and no older
#: acknowledgement counts.
GENERATION_S = 1000.0
TICK_S = 0.001
SPEC = JobSpec(
    name="search",
    roles=(Role(name="worker", count=len(NODES), command=("train",)),),
    restarts=RestartPolicy(
        max_restarts=9, platform_max_restarts=9, max_in_a_row=9, window_restarts=9, backoff_s=0.0, max_isolations=0
    ),
    timers=Timers(
        check_s=EVER, prepare_s=EVER, start_s=EVER, kill_s=EVER, lease_s=LEASE_S, resend_s=EVER, settle_s=1.0
    ),
    checks=(),
)


@dataclass(frozen=True)
class Bounds:
    """The number of troubles allowed on one path."""

    attempts: int = 2
    crashes: int = 1
    expiries: int = 1
    suspicions: int = 0
    agent_restarts: int = 0
    owner_crashes: int = 0
    #: Whether the second node's messages arrive at once, each once, and its processes are quick. So the search can
    #: follow the troubles of the first node much further.
    prompt: bool = False


@dataclass
class Side:
    """One node: its agent, its processes (rank → (attempt, state)), its clock and its last report."""

    agent: Agent
    processes: dict[int, tuple[int, str]] = field(default_factory=dict)
    generation: int = 0
    said: int = 0
    last: Any = None
    #: The latest generation whose report has reached the owner. The owner granted no lease for a later generation.
    heard: int = -1

    @property
    def now(self) -> float:
        return self.generation * GENERATION_S + self.said * TICK_S


@dataclass
class State:
    """The whole state at one moment.

    `told`: every message ever sent, as numbers into the search's table of messages.
    """

    owner: Owner
    sides: tuple[Side, ...]
    told: frozenset[int]
    left: Bounds
    at_once: list[tuple[str, int, Any]] = field(default_factory=list)

    @property
    def gang(self) -> Gang:
        return self.owner.gang

    def touch(self, *, owner: bool, side: int | None) -> State:
        """Return a copy of the state in which the owner, or one side, or both may be changed. The rest is shared."""
        whose = clone(self.owner, {}) if owner else self.owner
        sides = tuple(clone(each, {}) if index == side else each for index, each in enumerate(self.sides))
        return State(whose, sides, self.told, self.left)

    def key(self) -> Any:
        return owner_key(self.owner), tuple(side_key(side) for side in self.sides), self.told, self.left


def owner_key(owner: Owner) -> Any:
    gang = owner.gang
    attempt_state = gang.attempt_state
    return (
        gang.phase,
        gang.attempt,
        gang.highest,
        gang.term,
        frozenset(gang.agents.unheard),
        attempt_state.sent,
        tuple(known.state for known in attempt_state.roster.members.values()),
        frozenset(gang.agents.stopped.items()),
        frozenset(gang.agents.boots.items()),
        frozenset(gang.agents.busy.items()),
        frozenset(gang.absent),
        frozenset(attempt_state.fenced),
        frozenset((node, said.boot, said.sent) for node, said in owner.said.items()),
        len(gang.records),
    )


def side_key(side: Side) -> Any:
    agent = side.agent
    return (
        side.generation,
        side.said,
        side.heard,
        tuple(side.processes.items()),
        agent.boot,
        agent.attempt,
        max(agent.term, 1),  # No owner has a term below 1, so terms 0 and 1 are equal.
        agent.stopped,
        agent.floor,
        agent.lease.until > side.now,
        tuple((rank, hand.state) for rank, hand in agent.workers.slots.items()),
        agent.remembered,
        agent.stopping.intended,
        agent.stopping.killed,
    )


FROZEN = (str, int, float, type(None), Enum, Noun, Message, frozenset, FunctionType, type)
Memo = dict[int, Any]
Copier = Callable[[Any, Memo], Any]


def clone(value: Any, memo: Memo) -> Any:
    """Copy everything mutable, and share frozen values. `copy.deepcopy` would take twenty times as long."""
    kind = type(value)
    copier = _COPIERS[kind] if kind in _COPIERS else _copier(kind)
    if copier is None:
        return value
    if (known := memo.get(id(value))) is None:
        known = memo[id(value)] = copier(value, memo)
    return known


def _copier(kind: type) -> Copier | None:
    """Return the function that copies values of this type; None: such values are shared, not copied.

    The result is cached by type.
    """
    if issubclass(kind, FROZEN):
        found = None
    else:
        found = next((copier for base, copier in _BY_BASE.items() if issubclass(kind, base)), _object)
    _COPIERS[kind] = found
    return found


def _object(value: Any, memo: Memo) -> Any:
    made = memo[id(value)] = object.__new__(type(value))
    made.__dict__ = _dict(value.__dict__, memo)
    return made


def _dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    shared = _COPIERS.get
    return {key: item if shared(type(item), clone) is None else clone(item, memo) for key, item in value.items()}


_COPIERS: dict[type, Copier | None] = {}
_BY_BASE: dict[type, Copier] = {
    Counter: lambda value, memo: Counter(value),
    dict: _dict,
    list: lambda value, memo: [clone(item, memo) for item in value],
    tuple: lambda value, memo: tuple([clone(item, memo) for item in value]),
    set: lambda value, memo: set(value),
    deque: lambda value, memo: deque(maxlen=value.maxlen),  # only the trace is a deque; no behaviour depends on it
    msgspec.Struct: lambda value, memo: copy.copy(value),
    MethodType: lambda value, memo: MethodType(value.__func__, clone(value.__self__, memo)),
}
