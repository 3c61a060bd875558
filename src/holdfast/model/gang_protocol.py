"""The gang protocol: the messages between the owner and the agents.

Every command has the number of its attempt, so that a message about an old attempt never changes a newer one. Every
report contains the whole state of the node's workers, so a lost message does no harm. A time is sent as an age, or as a
reading of the sender's clock that the receiver echoes. The wall clocks of two machines are never compared.
"""

from __future__ import annotations

import enum

from holdfast.model.evidence import RankSnapshot
from holdfast.model.exit_report import WorkerExit
from holdfast.model.job_spec import GangShape, Seat
from holdfast.model.noun_base import At, Message, Noun


class Meeting(Noun, frozen=True, kw_only=True):
    """The rendezvous address of the workers of one attempt: MASTER_ADDR and MASTER_PORT."""

    address: str
    port: int
    #: Whether a rendezvous store already listens at this address. If not, rank 0 opens one.
    served: bool = False


class Peers(Noun, frozen=True, kw_only=True):
    """The addresses of all tasks of one attempt, in a compact form because every node of the gang gets them.

    The form has no keys: the position of an entry tells its meaning. `holdfast.model.peer_addresses` builds and reads
    this form.
    """

    #: The addresses of the attempt's nodes, in the order of their ranks.
    hosts: tuple[str, ...]
    #: Role → where its tasks run, in order, as a flat tuple of pairs: a node (its index in `hosts`), and the number of
    #: consecutive tasks on that node.
    tasks: dict[str, tuple[int, ...]]
    #: Role → label of ports → the number of such ports of each task of the role.
    labels: dict[str, dict[str, int]] = {}
    #: The ports of each node, ordered by the node's ranks and then by their labels. Empty: no ports are reserved.
    ports: tuple[tuple[int, ...], ...] = ()
    #: The port of the sshd on each node. Empty: no sshd runs.
    ssh: tuple[int, ...] = ()


class Prepare(Message, frozen=True, kw_only=True):
    """Prepare these workers (process, environment, imports). They then wait for `Go`."""

    attempt: int
    #: The workers of the receiving node only, so that the size of a command does not grow with the gang.
    seats: tuple[Seat, ...]
    shape: GangShape = GangShape()
    #: The rendezvous address of the workers; None: the job has one node, which chooses the address.
    meeting: Meeting | None = None
    #: The addresses of all tasks, the same for every node; None: the job does not use them.
    peers: Peers | None = None
    #: The owner's term, which rises with every restart of the owner. An agent ignores commands with a lower term than
    #: it has seen.
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
    #: If positive, notify the workers first: those that asked for a notice then have this many seconds to save and
    #: exit.
    save_s: float = 0.0
    term: int = 0
    #: The first signal to the workers: SIGTERM, or the signal that the owner got. 0: none, because the workers already
    #: got one from outside holdfast. If the first signal is not SIGTERM, SIGTERM follows after half of the grace
    #: period.
    signal: int = 15
    #: Seconds from this command to the first signal. The owner may learn meanwhile that the workers already got the
    #: signal.
    hold_s: float = 0.0
    #: SIGKILL follows at most this many seconds after the command, even if `save_s` and `grace_s` are longer.
    within_s: float | None = None
    #: Seconds until SIGTERM for processes that an exited worker left running. None: they get SIGTERM at once, because a
    #: stop of the job was requested.
    leftover_s: float | None = None


class Ack(Message, frozen=True, kw_only=True):
    """The owner's answer to a report. It renews the agent's lease, which counts from when the agent *sent* that
    report.
    """

    #: When the acknowledged report was sent, by the agent's clock; the owner copies it from the report.
    sent: float
    #: The number of the last attempt that the owner has ended. The agent ignores commands for this attempt and for
    #: older ones.
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
    """The state of one worker, as part of an agent's report."""

    rank: int
    state: MemberState
    exit: WorkerExit | None = None
    #: Seconds since the worker ended, by the agent's clock.
    age_s: float = 0.0
    start_failed: str = ""
    #: When the worker ended, in seconds on the owner's clock. The owner adds this estimate to the agent's report.
    died_at: float | None = None
    #: Whether the worker was forked from a prewarmed process, which had already imported its modules.
    warm: bool = False
    #: Whether the worker had asked for a notice when it must save and exit.
    listened: bool = False


class Report(Noun, frozen=True, kw_only=True):
    """An agent's report about its workers, with their whole state. The agent sends it on every change, and as the
    heartbeat.
    """

    node: str
    #: A number that rises with each start of the agent. A higher number shows that the workers of the node's earlier
    #: agent have ended.
    boot: int
    #: The number of the attempt that the agent works on.
    attempt: int
    #: The newest attempt of which no process is left on this node. No process of an older attempt is left either.
    stopped: int
    #: When the report was sent, by the agent's clock; the acknowledgement echoes it.
    sent: float
    members: tuple[Member, ...] = ()
    #: The highest owner's term in a command that this agent received.
    term: int = 0


# ---------------------------------------------------------------------- samples of the ranks, to detect a hang


class Closeness(enum.StrEnum):
    """How much data a node collects about each of its ranks in one sample."""

    #: Only the time of each rank's last line or step. Reading it costs nothing.
    WORDS = "words"
    #: The facts about each rank in /proc.
    LIGHT = "light"
    #: The facts about each rank in /proc, and the stack of each rank.
    STACKS = "stacks"


class LookAtRanks(Message, frozen=True, kw_only=True):
    """Take a sample of the ranks on this node. Answer with `RanksSeen` of the same attempt and number."""

    attempt: int
    #: The number of the sample; each sample has a higher one. An answer to another sample is ignored.
    number: int
    closeness: Closeness
    #: Whether the stacks include native frames. To read native frames, the node halts each process for a moment.
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
    """Make the workers write their stacks when they are stopped.

    The owner sends this request when the gang hangs and no sample has a stack.
    """

    attempt: int


# ------------------------------------------ measuring links between nodes, during the checks before an attempt

TOKEN_BYTES = 16


class OpenPort(Message, frozen=True, kw_only=True):
    """Listen for connections of peers that present this token, until `ClosePort`. Answer with `PortOpen`."""

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
    #: Seconds for a round trip of one byte: the shortest of several.
    round_trip_s: float = 0.0
    #: Seconds for a round trip of `size` bytes.
    exchange_s: float = 0.0
    trouble: str = ""


class ClosePort(Message, frozen=True, kw_only=True):
    """Stop listening for peers, because the links have been measured."""

    attempt: int
    round: int
