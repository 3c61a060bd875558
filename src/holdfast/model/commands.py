"""What owner and agent say to each other: the gang protocol's messages.

Every command carries its attempt; what an old attempt says can never touch a newer one. State is repeated, not just
announced: a lost message heals itself. Times travel as ages or as the sender's own clock echoed back, never as wall
clocks to be compared.
"""

from __future__ import annotations

import enum

from holdfast.model.base import Message, Noun
from holdfast.model.exits import WorkerExit
from holdfast.model.jobs import GangShape, Seat


class Meeting(Noun, frozen=True, kw_only=True):
    """Where the workers of one attempt find each other: MASTER_ADDR and MASTER_PORT."""

    address: str
    port: int
    served: bool = False
    """A store listens there already; otherwise rank 0 opens it."""


class Peers(Noun, frozen=True, kw_only=True):
    """Where all tasks of one attempt are reached, as small as it can be said: it goes to every node of the gang.

    The order says most of it. `holdfast.model.peers` makes and reads it.
    """

    hosts: tuple[str, ...]
    """Of its nodes, in the order of their ranks."""
    tasks: dict[str, tuple[int, ...]]
    """Role → its tasks in order, as runs: a node (its place in `hosts`), how many of them in a row, the next node, …"""
    labels: dict[str, dict[str, int]] = {}
    """Role → label → how many ports each of its tasks has."""
    ports: tuple[tuple[int, ...], ...] = ()
    """Each node's, in the order of its ranks and of their labels. Empty: there are none."""
    ssh: tuple[int, ...] = ()
    """The port of each node's sshd. Empty: there is none."""


class Prepare(Message, frozen=True, kw_only=True):
    """Make these workers ready (process, environment, imports) and let them wait."""

    attempt: int
    seats: tuple[Seat, ...]
    """Those of this node: what a command carries must not grow with the gang."""
    shape: GangShape = GangShape()
    meeting: Meeting | None = None
    """None: there is one node, which chooses by itself."""
    peers: Peers | None = None
    """Where all tasks of the attempt are reached, for jobs that ask for it; it is the same for every node."""
    term: int = 0
    """Rises with every return of the owner: an agent obeys no owner of before."""


class Go(Message, frozen=True, kw_only=True):
    """Let the prepared workers run."""

    attempt: int
    term: int = 0


class Stop(Message, frozen=True, kw_only=True):
    """Stop every worker of this attempt, and of any older one, to the last process."""

    attempt: int
    reason: str
    grace_s: float
    save_s: float = 0.0
    """First tell the workers, and leave those that listen this long to save and leave by themselves."""
    term: int = 0
    signal: int = 15
    """What the workers get first: SIGTERM, or the signal that the owner got. 0: they have got it from outside already.
    After any other than SIGTERM, SIGTERM follows when half of the grace is over."""
    hold_s: float = 0.0
    """So long after the command the first signal is sent: it may turn out that the workers have got it already."""
    within_s: float | None = None
    """SIGKILL follows so long after the command at the latest, also where `save_s` and `grace_s` are longer."""


class Ack(Message, frozen=True, kw_only=True):
    """Answer to a report: renews the lease, counted from when that report was *sent*."""

    sent: float
    """The agent's own clock, echoed."""
    floor: int = 0
    """The highest attempt that is dead for the owner: the agent must not obey anything at or below it."""
    term: int = 0


Command = Prepare | Go | Stop | Ack


class MemberState(enum.StrEnum):
    """Of one worker, as its agent sees it."""

    NONE = "none"
    BOOTING = "booting"
    PREPARED = "prepared"
    GOING = "going"
    UP = "up"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ALIVE = frozenset({MemberState.BOOTING, MemberState.PREPARED, MemberState.GOING, MemberState.UP})
"""States in which a process of the worker may live."""


class Member(Noun, frozen=True, kw_only=True):
    """One worker's state in a report."""

    rank: int
    state: MemberState
    exit: WorkerExit | None = None
    age_s: float = 0.0
    """How long ago the worker ended, on the agent's clock."""
    start_failed: str = ""
    died_at: float | None = None
    """When it ended, in seconds on the owner's clock: the owner's own word, beside what the agent told."""
    warm: bool = False
    """It was forked from a process that had done its imports."""
    listened: bool = False
    """It had said that it wants to know when it is to save and leave."""


class Report(Noun, frozen=True, kw_only=True):
    """An agent's one message: sent on every change, and as the heartbeat."""

    node: str
    boot: int
    """Changes when the agent restarts: its workers of before are gone."""
    attempt: int
    """The attempt the agent is at."""
    stopped: int
    """Every process of attempts up to this one is reaped."""
    sent: float
    """The agent's own clock; the acknowledgement echoes it."""
    members: tuple[Member, ...] = ()
    term: int = 0
    """The highest term of an owner that this agent has heard."""
