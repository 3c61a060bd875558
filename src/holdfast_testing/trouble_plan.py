"""What goes wrong in one simulation: made from a seed, or written down by hand for a story.

A plan is plain data. Everything random about a simulation is either in its plan or drawn from dice that the plan's
seed sets, so a seed is all that it takes to see the same run again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from holdfast.model.evidence import StopRequest
from holdfast.model.job_spec import JobSpec, NodeInfo


class When(enum.StrEnum):
    """In which part of its life a process falls ill."""

    START = "start"
    BOOT = "boot"
    CONNECT = "connect"
    RUN = "run"


class What(enum.StrEnum):
    CRASH = "crash"
    HANG = "hang"
    #: It ends with status 0 while the others still need it.
    LEAVE = "leave"
    NO_START = "no start"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process dies: its status and its last words."""

    exit_code: int | None = None
    signal: int | None = None
    words: str = ""
    #: The kernel killed it for its memory, and says so.
    by_memory: bool = False


@dataclass(frozen=True, slots=True)
class Ill:
    """What befalls one process, `after_s` seconds into the part of its life."""

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
    """A node loses its power at `start`; it is back with a new boot at `end`, or never."""

    node: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Crash:
    """Something dies at `at` and is back `away_s` later: the owner, or a node's agent."""

    at: float
    away_s: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """A node's user ends it at `at`, and starts it anew at `back`, or never."""

    node: str
    at: float
    back: float | None


@dataclass(frozen=True, slots=True)
class BadCheck:
    """What a round of checks answers: nothing at all, a fatal failure, or nodes to leave out."""

    silent: bool = False
    fatal: bool = False
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Platform:
    """What runs the job, and may start it again on its nodes."""

    #: When it ends the run of the job without a word, and starts the next.
    ends: tuple[float, ...] = ()
    #: From its being asked for another run to the end of this one.
    kill_s: float = 1.0
    #: From the end of a run to the beginning of the next.
    away_s: float = 20.0
    refuses: bool = False
    #: The next run has not the nodes that the job is not to get again, nor others for them.
    fewer: bool = False


@dataclass(frozen=True)
class Plan:
    """One simulation. Times are seconds from its start; ranks and attempts are the gang's own numbers."""

    seed: int
    spec: JobSpec
    nodes: tuple[NodeInfo, ...]
    #: When each node is started; infinite: never. Empty: the owner knows all of them from the start.
    joins: dict[str, float] = field(default_factory=dict)
    leaves: tuple[Leave, ...] = ()
    platform: Platform | None = None
    #: Owner and the only agent share a process, as on one machine: no network, no lease.
    local: bool = False
    horizon_s: float = 4000.0
    #: From here on the network is perfect and nothing new breaks.
    heal_at: float = 400.0
    latency_s: float = 0.05
    jitter: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    very_late_s: float = 60.0
    cuts: tuple[Cut, ...] = ()
    #: How much faster than the owner's a node's clock runs: 0.01 is one per cent.
    drift: dict[str, float] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    agent_crashes: tuple[Crash, ...] = ()
    owner_crashes: tuple[Crash, ...] = ()
    stops: tuple[tuple[float, StopRequest], ...] = ()
    #: By the number of the round, counted over the whole job from 1.
    bad_checks: dict[int, BadCheck] = field(default_factory=dict)
    check_s: float = 0.2
    #: Seconds from the start of a rank's process until it is prepared; 1 where not named.
    boot_s: dict[int, float] = field(default_factory=dict)
    up_s: float = 0.1
    connect_s: float = 0.5
    connect_timeout_s: float = 30.0
    #: After this long without a peer's part, those that wait for it die of it.
    collective_timeout_s: float = 30.0
    #: Nodes whose processes cannot reach each other, though each of them reaches the owner.
    unreachable: frozenset[str] = frozenset()
    #: How long all ranks together have to run for the job to be done; 0: for ever.
    work_s: float = 40.0
    #: Seconds of work a step; checkpoints are taken at each. 0: nothing is kept of an attempt's work.
    step_s: float = 0.0
    #: By (attempt, rank).
    ills: dict[tuple[int, int], Ill] = field(default_factory=dict)
    #: Every process on such a node falls ill.
    bad_nodes: dict[str, Ill] = field(default_factory=dict)
    #: Of rank 0, in every attempt.
    bug: Ill | None = None
    #: How soon a rank notices that a peer's process is gone; below 0: not before the collective's time-out.
    peer_detect_s: float = 1.0
    #: How ranks die of a lost peer; `{rank}` is the peer's.
    peer_words: tuple[Ending, ...] = (Ending(exit_code=1, words="recv failed: Connection closed by rank {rank}"),)
    #: How long a crash takes from its first sign to the process's end: a core is written, a device given back.
    dying_s: float = 0.0
    #: Seconds that reading the logs of an attempt takes, by attempt; infinite: they are never read.
    collect_s: dict[int, float] = field(default_factory=dict)
    #: From SIGTERM to the process's end.
    term_s: float = 0.05
    term_ending: Ending = Ending(signal=15)
    #: Ranks that ignore SIGTERM.
    stubborn: frozenset[int] = frozenset()
    #: (attempt, rank) of processes that outlive SIGKILL for a long time (stuck in the kernel).
    unkillable: frozenset[tuple[int, int]] = frozenset()
    #: Nothing at all is wrong: there must be exactly one attempt.
    quiet: bool = False
    #: An owner that crashes loses so many of its last events, but none that it had secured.
    lose_tail: int = 0
    #: What was secured is lost as well.
    lying_disk: bool = False
    #: When the journal cannot be written, from … to … (seconds).
    journal_troubles: tuple[tuple[float, float], ...] = ()
    #: An owner that crashes may do so between writing an event down and acting on it.
    lose_actions: bool = True
