"""The troubles of one simulation: drawn from a seed, or written by hand.

A plan is plain data. Everything random in a simulation is in its plan, or comes from a random generator with the plan's
seed. So the seed alone reproduces a run.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from holdfast.model.evidence import StopRequest
from holdfast.model.job_spec import JobSpec, NodeInfo


class When(enum.StrEnum):
    """The part of a process's life in which its trouble begins."""

    START = "start"
    BOOT = "boot"
    CONNECT = "connect"
    RUN = "run"


class What(enum.StrEnum):
    CRASH = "crash"
    HANG = "hang"
    #: The process exits with status 0 while the others still need it.
    LEAVE = "leave"
    NO_START = "no start"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process dies: its status and its last output."""

    exit_code: int | None = None
    signal: int | None = None
    words: str = ""
    #: Whether the kernel killed the process for its memory, and logged the kill.
    by_memory: bool = False


@dataclass(frozen=True, slots=True)
class Ill:
    """The trouble of one process. It begins `after_s` seconds after the part `when` of the process's life."""

    when: When
    what: What
    after_s: float = 0.1
    ending: Ending = Ending(exit_code=1)


@dataclass(frozen=True, slots=True)
class Cut:
    """Owner and node cannot reach each other from `start` to `end` (seconds)."""

    node: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Outage:
    """A power loss of a node at `start`. The node is back with a new boot number at `end`, or never."""

    node: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Crash:
    """A crash of the owner or of a node's agent at `at`. It is back `away_s` seconds later."""

    at: float
    away_s: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """The node's user ends the node's agent at `at`, and starts it again at `back`, or never."""

    node: str
    at: float
    back: float | None


@dataclass(frozen=True, slots=True)
class BadCheck:
    """The result of a failing round of checks: no answer, a fatal failure, or nodes to be left out."""

    silent: bool = False
    fatal: bool = False
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Platform:
    """The platform that runs the job, and may restart it on its nodes."""

    #: The times at which the platform ends the run of the job without notice, and starts the next run.
    ends: tuple[float, ...] = ()
    #: Seconds from the request for another run to the end of this one.
    kill_s: float = 1.0
    #: Seconds from the end of a run to the beginning of the next.
    away_s: float = 20.0
    refuses: bool = False
    #: Whether the next run lacks the nodes that the job must avoid, without others in their place.
    fewer: bool = False


@dataclass(frozen=True)
class Plan:
    """The plan of one simulation. Times are seconds from its start; ranks and attempts are the gang's own numbers."""

    seed: int
    spec: JobSpec
    nodes: tuple[NodeInfo, ...]
    #: The time at which each node starts; infinite: never. Empty: the owner knows all nodes from the start.
    joins: dict[str, float] = field(default_factory=dict)
    leaves: tuple[Leave, ...] = ()
    #: When the platform says whether it has room for the node of a place, with the place and why not; empty: it has.
    rooms: tuple[tuple[float, int, str], ...] = ()
    platform: Platform | None = None
    #: Whether owner and the only agent share a process, as on one machine, without network and lease.
    local: bool = False
    horizon_s: float = 4000.0
    #: The time from which the network is perfect and no new trouble begins.
    heal_at: float = 400.0
    latency_s: float = 0.05
    jitter: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    very_late_s: float = 60.0
    cuts: tuple[Cut, ...] = ()
    #: Node → the speed of its clock relative to the owner's: 0.01 means one per cent faster.
    drift: dict[str, float] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    agent_crashes: tuple[Crash, ...] = ()
    owner_crashes: tuple[Crash, ...] = ()
    stops: tuple[tuple[float, StopRequest], ...] = ()
    #: Failing rounds of checks, by the number of the round, counted over the whole job from 1.
    bad_checks: dict[int, BadCheck] = field(default_factory=dict)
    check_s: float = 0.2
    #: Rank → seconds from the start of its process until it is prepared; default: 1.
    boot_s: dict[int, float] = field(default_factory=dict)
    up_s: float = 0.1
    connect_s: float = 0.5
    connect_timeout_s: float = 30.0
    #: Seconds after which ranks that wait for a peer in a collective die.
    collective_timeout_s: float = 30.0
    #: Nodes whose processes cannot reach each other, though each node reaches the owner.
    unreachable: frozenset[str] = frozenset()
    #: Seconds that all ranks together must run to finish the job; 0: it never finishes.
    work_s: float = 40.0
    #: Seconds of work per step; each step writes a checkpoint. 0: no work of an attempt is saved.
    step_s: float = 0.0
    #: Troubles of processes, by (attempt, rank).
    ills: dict[tuple[int, int], Ill] = field(default_factory=dict)
    #: Node → the trouble of every process on it.
    bad_nodes: dict[str, Ill] = field(default_factory=dict)
    #: A trouble that rank 0 has in every attempt, like a bug in the program.
    bug: Ill | None = None
    #: Seconds until a rank notices the death of a peer's process; below 0: only the collective's time-out reveals it.
    peer_detect_s: float = 1.0
    #: How ranks die of a lost peer; `{rank}` is the peer's rank.
    peer_words: tuple[Ending, ...] = (Ending(exit_code=1, words="recv failed: Connection closed by rank {rank}"),)
    #: Seconds from the first sign of a crash to the end of the process: it writes a core dump, or releases a device.
    dying_s: float = 0.0
    #: Seconds to read the logs of an attempt, by attempt; infinite: they are never read.
    collect_s: dict[int, float] = field(default_factory=dict)
    #: Seconds from SIGTERM to the process's end.
    term_s: float = 0.05
    term_ending: Ending = Ending(signal=15)
    #: Ranks that ignore SIGTERM.
    stubborn: frozenset[int] = frozenset()
    #: (attempt, rank) of processes that are stuck in the kernel and long outlive SIGKILL.
    unkillable: frozenset[tuple[int, int]] = frozenset()
    #: Whether the plan has no trouble at all. Then the job must take exactly one attempt.
    quiet: bool = False
    #: Number of last journal events that a crashing owner loses. Events that are safe on the disk are kept.
    lose_tail: int = 0
    #: Whether events that should be safe on the disk are lost as well.
    lying_disk: bool = False
    #: The periods (start, end) in seconds during which the journal cannot be written.
    journal_troubles: tuple[tuple[float, float], ...] = ()
    #: Whether an owner may crash after it has written an event and before it acts on it.
    lose_actions: bool = True
