"""The gang protocol: the messages between the owner and the agents.

Every command has its attempt's number, so a message about an old attempt never changes a newer one. Every report has
the whole state of the node's workers, so a lost message does no harm. A time is sent as an age, or as a reading of the
sender's clock that the receiver sends back. The clocks of two machines are never compared.
"""

from __future__ import annotations

import enum

import msgspec

from holdfast.model.evidence import RankSnapshot
from holdfast.model.exit_report import WorkerExit
from holdfast.model.job_spec import GangShape, Placement
from holdfast.model.noun_base import At, Message, Noun


class Meeting(Noun, frozen=True, kw_only=True):
    """The rendezvous address of the workers of one attempt: MASTER_ADDR and MASTER_PORT."""

    address: str
    port: int
    #: Whether a rendezvous store listens at this address already. If not, rank 0 opens one.
    served: bool = False


class Peers(Noun, frozen=True, kw_only=True):
    """The addresses of all tasks of one attempt, in a compact form, because every node of the gang gets them.

    The position of an entry gives its meaning, without keys. `holdfast.model.peer_addresses` builds and reads this
    form.
    """

    #: The addresses of the attempt's nodes, in the order of their ranks.
    hosts: tuple[str, ...]
    #: Role → its tasks in order, as a flat tuple of pairs: a node (its index in `hosts`), and the number of consecutive
    #: tasks on it.
    tasks: dict[str, tuple[int, ...]]
    #: Role → label of ports → the number of such ports of each task.
    labels: dict[str, dict[str, int]] = {}
    #: The ports of each node, by the node's ranks and then by label. Empty: no ports are reserved.
    ports: tuple[tuple[int, ...], ...] = ()
    #: The port of the sshd on each node. Empty: no sshd runs.
    ssh: tuple[int, ...] = ()


class Prepare(Message, frozen=True, kw_only=True):
    """Prepare these workers (process, environment, imports). They then wait for `Go`."""

    attempt: int
    #: The workers of the receiving node alone, so that the size of a command does not grow with the gang.
    placements: tuple[Placement, ...] = msgspec.field(name="seats")
    shape: GangShape = GangShape()
    #: The rendezvous address of the workers; None: the job has one node, which chooses the address.
    meeting: Meeting | None = None
    #: The addresses of all tasks, the same for every node; None: the job does not use them.
    peers: Peers | None = None
    #: The owner's term, which rises with each restart of the owner. An agent ignores commands with a lower term than
    #: the highest it has seen.
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
    #: If positive, notify the workers first. Those that registered for a notice then have this many seconds to save and
    #: exit.
    save_s: float = 0.0
    term: int = 0
    #: The first signal to the workers: SIGTERM, or the owner's signal. 0: none, because the workers have already got
    #: one. After another first signal SIGTERM follows, after half of the grace period.
    signal: int = 15
    #: Seconds from this command to the first signal. Meanwhile the owner may learn that the workers have already got
    #: the signal.
    hold_s: float = 0.0
    #: SIGKILL follows at most this many seconds after the command, even if `save_s` and `grace_s` are longer.
    within_s: float | None = None
    #: Seconds until SIGTERM for processes that an exited worker left running. None: they get SIGTERM now, because a
    #: stop of the job was requested.
    leftover_s: float | None = None


class Ack(Message, frozen=True, kw_only=True):
    """The owner's answer to a report. It renews the agent's lease, which counts from when the agent *sent* that
    report.
    """

    #: When the report was sent, by the agent's clock. The owner copies it from the report.
    sent: float
    #: The last attempt that the owner has ended. The agent ignores commands for this attempt and older ones.
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


#: States of a worker that may have a live process.
ALIVE = frozenset({MemberState.BOOTING, MemberState.PREPARED, MemberState.GOING, MemberState.UP})


class Member(Noun, frozen=True, kw_only=True):
    """The state of one worker, as part of an agent's report."""

    rank: int
    state: MemberState
    exit: WorkerExit | None = None
    #: Seconds since the worker ended, by the agent's clock.
    age_s: float = 0.0
    start_failed: str = ""
    #: When the worker ended, in seconds on the owner's clock. The owner adds this estimate to the report.
    died_at: float | None = None
    #: Whether the worker was a fork of a prewarmed process with its imports done.
    warm: bool = False
    #: Whether the worker had registered for a notice to save and exit.
    listened: bool = False


class Report(Noun, frozen=True, kw_only=True):
    """An agent's report with the whole state of its workers. The agent sends it after every change, and as the
    heartbeat.
    """

    node: str
    #: The agent's start number. A higher number shows that the workers of the node's earlier agent have ended.
    boot: int
    #: The attempt that the agent works on.
    attempt: int
    #: The newest attempt that has ended on this node, with all older ones: no process of them is alive.
    stopped: int
    #: When the report was sent, by the agent's clock. The acknowledgement copies it.
    sent: float
    members: tuple[Member, ...] = ()
    #: The highest owner term in any command that this agent has received.
    term: int = 0


# ---------------------------------------------------------------------- samples of the ranks, to detect a hang


class Closeness(enum.StrEnum):
    """How much data a sample has about each rank."""

    #: Only the time of each rank's last line or step, which costs nothing.
    WORDS = "words"
    #: The facts in /proc about each rank.
    LIGHT = "light"
    #: The facts in /proc and the stack of each rank.
    STACKS = "stacks"


class LookAtRanks(Message, frozen=True, kw_only=True):
    """Take a sample of the ranks on this node. Answer with `RanksSeen` of the same attempt and number."""

    attempt: int
    #: The number of the sample; a later sample has a higher one. The owner ignores answers with another number.
    number: int
    closeness: Closeness
    #: Whether the stacks include native frames. To read them, the node halts each process for a moment.
    native: bool = False


class RankActivity(Noun, frozen=True, kw_only=True):
    """When one live rank was last active."""

    rank: int
    #: When the rank last printed a line or reported a step; None: never in this attempt.
    at: At | None = None


class RanksSeen(Message, frozen=True, kw_only=True):
    """The sample that a node took of its ranks."""

    attempt: int
    number: int
    #: When each live rank of the attempt on this node was last active.
    heard: tuple[RankActivity, ...] = ()
    #: A snapshot of each rank; empty if the request had `Closeness.WORDS`.
    look: tuple[RankSnapshot, ...] = ()


class WantLastWords(Message, frozen=True, kw_only=True):
    """Let the workers write their stacks when they are stopped.

    The owner sends this if the gang hangs and no sample has a stack.
    """

    attempt: int


# ------------------------------------------ measuring links between nodes, during the checks before an attempt

TOKEN_BYTES = 16


class OpenPort(Message, frozen=True, kw_only=True):
    """Listen for peers that present this token, until `ClosePort`. Answer with `PortOpen`."""

    attempt: int
    round: int
    #: The secret that peers must present, in hexadecimal.
    token: str
    #: The number of bytes that a peer sends and gets back.
    size: int
    #: Seconds that the exchange with one peer may take.
    wait_s: float


class PortOpen(Message, frozen=True, kw_only=True):
    """The node listens on `port`. `trouble`: why it cannot listen; empty: it listens."""

    attempt: int
    round: int
    port: int = 0
    trouble: str = ""


class MeasurePeer(Message, frozen=True, kw_only=True):
    """Connect to a peer's port and exchange data with it. Answer with `PeerMeasured` of the same number."""

    attempt: int
    round: int
    number: int
    address: str
    port: int
    token: str
    size: int
    wait_s: float


class PeerMeasured(Message, frozen=True, kw_only=True):
    """The times of an exchange of data with a peer. `trouble`: why the exchange failed; empty: it worked."""

    attempt: int
    round: int
    number: int
    #: The shortest round trip of one byte, in seconds.
    round_trip_s: float = 0.0
    #: Seconds for a round trip of `size` bytes.
    exchange_s: float = 0.0
    trouble: str = ""


class ClosePort(Message, frozen=True, kw_only=True):
    """Stop listening for peers, because the links have been measured."""

    attempt: int
    round: int
