"""The messages between owner and agents: the gang protocol.

Every command has its attempt's number; a message of an old attempt never touches a newer one. State is repeated, not
only announced: a lost message does no harm. Times travel as ages, or as the sender's own clock echoed back; two wall
clocks are never compared.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import WorkerExit
from holdfast.model.job_spec import GangShape, Seat
from holdfast.model.noun_base import Message, Noun


class Meeting(Noun, frozen=True, kw_only=True):
    """Where the workers of one attempt meet: MASTER_ADDR and MASTER_PORT."""

    address: str
    port: int
    served: bool = False
    """A store listens there already; otherwise rank 0 opens it."""


class Peers(Noun, frozen=True, kw_only=True):
    """Where all tasks of one attempt are reached, in little space: it goes to every node of the gang.

    Most of it follows from the order. `holdfast.model.peer_addresses` makes and reads it.
    """

    hosts: tuple[str, ...]
    """The addresses of its nodes, in the order of their ranks."""
    tasks: dict[str, tuple[int, ...]]
    """Role → its tasks in order, as runs: a node (its place in `hosts`), the number of its tasks in a row, the next
    node, …"""
    labels: dict[str, dict[str, int]] = {}
    """Role → label → the number of ports of each of its tasks."""
    ports: tuple[tuple[int, ...], ...] = ()
    """The ports of each node, in the order of its ranks and of their labels. Empty: there are none."""
    ssh: tuple[int, ...] = ()
    """The port of each node's sshd. Empty: there is none."""


class Prepare(Message, frozen=True, kw_only=True):
    """Prepare these workers (process, environment, imports) and let them wait."""

    attempt: int
    seats: tuple[Seat, ...]
    """The workers of this node only: a command must not grow with the gang."""
    shape: GangShape = GangShape()
    meeting: Meeting | None = None
    """None: there is one node, which chooses the port itself."""
    peers: Peers | None = None
    """Where all tasks of the attempt are reached, for jobs that ask for it; it is equal for every node."""
    term: int = 0
    """Rises with every restart of the owner: an agent obeys no earlier owner."""


class Go(Message, frozen=True, kw_only=True):
    """Let the prepared workers run the user's program."""

    attempt: int
    term: int = 0


class Stop(Message, frozen=True, kw_only=True):
    """Stop all processes of this attempt and of older ones."""

    attempt: int
    reason: str
    grace_s: float
    save_s: float = 0.0
    """First notify the workers: those that listen have so many seconds to save and exit by themselves."""
    term: int = 0
    signal: int = 15
    """The first signal to the workers: SIGTERM, or the signal that the owner got. 0: they have got it from outside
    already.

    After any other signal than SIGTERM, SIGTERM follows when half of the grace period has passed.
    """
    hold_s: float = 0.0
    """Seconds between the command and the first signal: in this time it may turn out that the workers have got it
    already."""
    within_s: float | None = None
    """SIGKILL follows so many seconds after the command at the latest, even where `save_s` and `grace_s` are longer."""


class Ack(Message, frozen=True, kw_only=True):
    """The answer to a report: renews the lease, which is counted from when that report was *sent*."""

    sent: float
    """The agent's own clock, echoed."""
    floor: int = 0
    """The highest attempt that has ended for the owner: the agent obeys no command for it or an older one."""
    term: int = 0


Command = Prepare | Go | Stop | Ack


class MemberState(enum.StrEnum):
    """The state of one worker, as its agent sees it."""

    NONE = "none"
    BOOTING = "booting"
    PREPARED = "prepared"
    GOING = "going"
    UP = "up"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ALIVE = frozenset({MemberState.BOOTING, MemberState.PREPARED, MemberState.GOING, MemberState.UP})
"""States in which the worker may have a live process."""


class Member(Noun, frozen=True, kw_only=True):
    """One worker's state in a report."""

    rank: int
    state: MemberState
    exit: WorkerExit | None = None
    age_s: float = 0.0
    """Seconds since the worker ended, by the agent's clock."""
    start_failed: str = ""
    died_at: float | None = None
    """When it ended, in seconds on the owner's clock: the owner's own estimate, beside the agent's report."""
    warm: bool = False
    """The worker was forked from a process that had done its imports."""
    listened: bool = False
    """The worker had asked to be notified when it must save and exit."""


class Report(Noun, frozen=True, kw_only=True):
    """An agent's one message: it is sent on every change, and as the heartbeat."""

    node: str
    boot: int
    """Changes when the agent restarts: the workers of the earlier agent have ended."""
    attempt: int
    """The attempt that the agent is working on."""
    stopped: int
    """All processes of attempts up to this one are reaped."""
    sent: float
    """The agent's own clock; the acknowledgement echoes it."""
    members: tuple[Member, ...] = ()
    term: int = 0
    """The highest term of an owner that this agent has heard from."""
