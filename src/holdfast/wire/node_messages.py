"""The messages between owner and nodes, except the commands and reports of the gang protocol
(`model/gang_protocol.py`)."""

from __future__ import annotations

import enum

from holdfast.decide.gang_view import GangView
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import MemoryKill
from holdfast.model.faults import DeviceStanding
from holdfast.model.gang_protocol import Report
from holdfast.model.job_spec import JobSetting, JobSpec, NodeInfo, NodePlan
from holdfast.model.noun_base import Message, Noun


class LogStream(enum.StrEnum):
    """The stream of a rank that a log holds."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Verb(enum.StrEnum):
    """A holdfast command that one node runs for a person at another node."""

    SHOW = "show"
    DEVICES = "devices"
    RELEASE = "release"
    REPORT_FAULT = "faults report"


#: Version of the protocol, increased when a message changes its meaning. The owner refuses agents of other versions.
PROTOCOL = 2


class Moved(Message, frozen=True, kw_only=True):
    """The gang has entered another phase, or excludes other devices than before."""

    view: GangView


class Recorded(Message, frozen=True, kw_only=True):
    """The owner has explained an attempt and decided what follows.

    From the record the nodes know which files to write beside the logs, and whether to trust their checks.
    """

    record: AttemptRecord


class ReadFaults(Message, frozen=True, kw_only=True):
    """The node's fault log has new entries: read it."""


class Hello(Message, frozen=True, kw_only=True):
    """An agent's first message on a connection."""

    protocol: int
    #: The version of holdfast.
    version: str
    #: Identifies the job: `--rdzv-id`, else the job's name and its script. The owner refuses agents of another job.
    job: str
    #: Random id of the agent; it stays the same as long as the node's guard is alive.
    agent: str
    #: Number of this start of the agent by its guard; it is higher after each restart.
    boot: int
    user: str
    #: Facts about the node. Its `name` is the machine's host name; the owner may choose another name.
    node: NodeInfo
    #: The options that were typed on this node.
    plan: NodePlan
    #: The owner's address that the agent dialled.
    dialled: str
    #: The highest attempt that the agent knows of.
    attempt: int = 0
    kept_out: tuple[DeviceStanding, ...] = ()
    #: Why this node hosts an owner of the job too, though another owner answers at the endpoint; empty: it hosts none.
    hosts: str = ""
    #: The kill for memory that ended the earlier agent, if the guard has found one.
    memory_kill: MemoryKill | None = None


class Foreign(Message, frozen=True, kw_only=True, tag="hello"):
    """The common fields of a hello from another version, which this version can read."""

    protocol: int
    version: str


class Welcome(Message, frozen=True, kw_only=True):
    """The owner admits an agent."""

    job_id: str
    #: The node's name in this job.
    node: str
    #: The job's spec. The node takes policy and timers from it; the commands of its workers are the node's own.
    spec: JobSpec
    term: int
    #: The host name of the owner's machine.
    owner: str
    #: Settings of scope `job` with the owner's values, which apply on each node.
    settings: tuple[JobSetting, ...] = ()


class Refused(Message, frozen=True, kw_only=True):
    """The owner refuses an agent; the agent's run ends."""

    #: Why the agent is refused, for the user.
    reason: str
    #: A command for the user to type.
    hint: str
    #: The exit status of the agent's run.
    code: int


class Told(Message, frozen=True, kw_only=True):
    """Carries an agent's report or heartbeat of the gang protocol."""

    report: Report


class Bye(Message, frozen=True, kw_only=True):
    """The agent has received the job's report, and exits."""


class Finished(Message, frozen=True, kw_only=True):
    """The job is over: each node's run ends with this report's code."""

    report: JobReport


class Requeued(Message, frozen=True, kw_only=True):
    """This run of the job is over, and the platform starts another run: each node's run ends without a report."""


class Asked(Message, frozen=True, kw_only=True):
    """An operator's command. Without a tag, the next command on the connection waits for the answer."""

    protocol: int
    version: str
    user: str
    host: str
    #: The command in JSON: one of the types in `holdfast.owner.nodes.operator_lines`.
    line: str
    #: Id of the command, repeated in the answer: several log requests may be open at once.
    tag: int = 0


class RemoteLogFile(Noun, frozen=True, kw_only=True):
    """One file of a log, on the node that has the log."""

    path: str
    #: Size of the file, in bytes.
    size: int


class LogPiece(Noun, frozen=True, kw_only=True):
    """A part of the log of one stream."""

    stream: LogStream
    #: Offset of the first byte of `data`, in bytes.
    at: int
    data: bytes = b""
    #: Current size of the whole log, in bytes.
    size: int = 0
    #: Inode number of the file to which `at` refers; 0: there is no log yet, or `timed` was not set.
    file: int = 0
    #: Times at which the lines were read: records of `model/log_time_format.py`, their offsets relative to `data`.
    times: bytes = b""
    #: Whether any byte of the log has a recorded time; only with `files`.
    has_times: bool = False
    #: The files of the log, oldest first; only if `LogFrom.most` is 0.
    files: tuple[RemoteLogFile, ...] = ()


class LogRead(Message, frozen=True, kw_only=True):
    """A node's answer to `ReadLog`."""

    id: int
    attempt: int = 0
    role: str = ""
    pieces: tuple[LogPiece, ...] = ()
    #: The log is complete on this node: the attempt is over, or the rank has moved to another node.
    over: bool = False
    #: Why there is nothing to read, for the user.
    trouble: str = ""
    #: The name of the node that answers.
    node: str = ""


class RankAt(Noun, frozen=True, kw_only=True):
    """The node of a rank in an attempt."""

    rank: int
    role: str
    node: str


class Answered(Message, frozen=True, kw_only=True):
    """The owner's answer to an operator's command."""

    ok: bool
    message: str
    log: LogRead | None = None
    #: Whether the job is over.
    ended: bool = False
    #: The `Asked.tag` of the command that this answers; 0: it had none.
    tag: int = 0
    #: The attempt to which `ranks` belong.
    attempt: int = 0
    ranks: tuple[RankAt, ...] = ()
    ranks_in_all: int = 0
    #: The attempts for which the owner knows the nodes of the ranks.
    attempts: tuple[int, ...] = ()


class LogFrom(Noun, frozen=True, kw_only=True):
    """The position in a stream's log from which to read."""

    stream: LogStream
    #: Offset in bytes; a negative number counts from the end.
    at: int = 0
    #: If set, read this many last lines instead.
    lines: int | None = None
    #: Return the times of the lines too, and read all files of a rotated log.
    timed: bool = False
    #: With `timed`: the file to which `at` refers (`LogPiece.file`); 0: read from the log's first byte.
    file: int = 0
    #: With `timed`: if set, start at the first line that was read at this time (seconds since the epoch) or later.
    since: float | None = None
    #: With `timed`: about how many bytes to return at most; 0: return only the position and the list of files.
    most: int | None = None
    #: With `timed`: leave out an unfinished last line while the attempt runs.
    whole: bool = False


class ReadLog(Message, frozen=True, kw_only=True):
    """Read one rank's logs. The node answers with a `LogRead` of the same `id`; with `wait`, once there are bytes."""

    id: int
    rank: int
    #: Number of the attempt; 0: the rank's last attempt on this node.
    attempt: int = 0
    streams: tuple[LogFrom, ...]
    wait: bool = False


class ForgetLog(Message, frozen=True, kw_only=True):
    """Cancel the `ReadLog` with this `id`."""

    id: int


class RunVerb(Message, frozen=True, kw_only=True):
    """Run a holdfast command on the node. The node answers with its output in a `VerbDone` of the same `id`."""

    id: int
    verb: Verb
    words: tuple[str, ...] = ()


class VerbDone(Message, frozen=True, kw_only=True):
    """A node's answer to `RunVerb`."""

    id: int
    ok: bool
    text: str


#: Requests from the owner to a node that serve an operator, or that fetch files for the job's directory.
Question = ReadLog | ForgetLog | RunVerb
NodeAnswer = LogRead | VerbDone
