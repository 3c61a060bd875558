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
    #: A store listens there already; otherwise rank 0 opens it.
    served: bool = False


class Peers(Noun, frozen=True, kw_only=True):
    """Where all tasks of one attempt are reached, in little space: it goes to every node of the gang.

    Most of it follows from the order. `holdfast.model.peer_addresses` makes and reads it.
    """

    #: The addresses of its nodes, in the order of their ranks.
    hosts: tuple[str, ...]
    #: Role → its tasks in order, as runs: a node (its place in `hosts`), the number of its tasks in a row, the next
    #: node, …
    tasks: dict[str, tuple[int, ...]]
    #: Role → label → the number of ports of each of its tasks.
    labels: dict[str, dict[str, int]] = {}
    #: The ports of each node, in the order of its ranks and of their labels. Empty: there are none.
    ports: tuple[tuple[int, ...], ...] = ()
    #: The port of each node's sshd. Empty: there is none.
    ssh: tuple[int, ...] = ()


class Prepare(Message, frozen=True, kw_only=True):
    """Prepare these workers (process, environment, imports) and let them wait."""

    attempt: int
    #: The workers of this node only: a command must not grow with the gang.
    seats: tuple[Seat, ...]
    shape: GangShape = GangShape()
    #: None: there is one node, which chooses the port itself.
    meeting: Meeting | None = None
    #: Where all tasks of the attempt are reached, for jobs that ask for it; it is equal for every node.
    peers: Peers | None = None
    #: Rises with every restart of the owner: an agent obeys no earlier owner.
    term: int = 0


class Go(Message, frozen=True, kw_only=True):
    """Let the prepared workers run the user's program."""

    attempt: int
    term: int = 0


class Stop(Message, frozen=True, kw_only=True):
    """Stop all processes of this attempt and of older ones."""

    attempt: int
    reason: str
    grace_s: float
    #: First notify the workers: those that listen have so many seconds to save and exit by themselves.
    save_s: float = 0.0
    term: int = 0
    #: The first signal to the workers: SIGTERM, or the signal that the owner got. 0: they have got it from outside
    #: already.
    #:
    #: After any other signal than SIGTERM, SIGTERM follows when half of the grace period has passed.
    signal: int = 15
    #: Seconds between the command and the first signal: in this time it may turn out that the workers have got it
    #: already.
    hold_s: float = 0.0
    #: SIGKILL follows so many seconds after the command at the latest, even where `save_s` and `grace_s` are longer.
    within_s: float | None = None


class Ack(Message, frozen=True, kw_only=True):
    """The answer to a report: renews the lease, which is counted from when that report was *sent*."""

    #: The agent's own clock, echoed.
    sent: float
    #: The highest attempt that has ended for the owner: the agent obeys no command for it or an older one.
    floor: int = 0
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


#: States in which the worker may have a live process.
ALIVE = frozenset({MemberState.BOOTING, MemberState.PREPARED, MemberState.GOING, MemberState.UP})


class Member(Noun, frozen=True, kw_only=True):
    """One worker's state in a report."""

    rank: int
    state: MemberState
    exit: WorkerExit | None = None
    #: Seconds since the worker ended, by the agent's clock.
    age_s: float = 0.0
    start_failed: str = ""
    #: When it ended, in seconds on the owner's clock: the owner's own estimate, beside the agent's report.
    died_at: float | None = None
    #: The worker was forked from a process that had done its imports.
    warm: bool = False
    #: The worker had asked to be notified when it must save and exit.
    listened: bool = False


class Report(Noun, frozen=True, kw_only=True):
    """An agent's one message: it is sent on every change, and as the heartbeat."""

    node: str
    #: Changes when the agent restarts: the workers of the earlier agent have ended.
    boot: int
    #: The attempt that the agent is working on.
    attempt: int
    #: All processes of attempts up to this one are reaped.
    stopped: int
    #: The agent's own clock; the acknowledgement echoes it.
    sent: float
    members: tuple[Member, ...] = ()
    #: The highest term of an owner that this agent has heard from.
    term: int = 0
