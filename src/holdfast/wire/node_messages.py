"""The messages between owner and nodes, except those of the gang protocol (`model/gang_protocol.py`)."""

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
    """A rank's output stream; each stream has a log."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Verb(enum.StrEnum):
    """A holdfast command that runs on one node for a user who is at another node."""

    SHOW = "show"
    DEVICES = "devices"
    RELEASE = "release"
    REPORT_FAULT = "faults report"


#: The version of the protocol. It is increased when a message changes its meaning. The owner refuses agents of other
#: versions.
PROTOCOL = 2


class Moved(Message, frozen=True, kw_only=True):
    """The gang's phase, or the set of devices that it excludes, has changed."""

    view: GangView


class Recorded(Message, frozen=True, kw_only=True):
    """The owner has explained an attempt and decided what follows.

    From the record each node decides which files to write beside the logs, and whether its checks must run again.
    """

    record: AttemptRecord


class ReadFaults(Message, frozen=True, kw_only=True):
    """A request to a node to read its fault log, because the log has new entries."""


class Hello(Message, frozen=True, kw_only=True):
    """An agent's first message on a connection."""

    protocol: int
    #: The version of holdfast that the agent runs.
    version: str
    #: The job's identity: `--rdzv-id`, or else the job's name and its script. The owner refuses agents of another job.
    job: str
    #: The random id of the agent. It stays the same while the node's guard runs.
    agent: str
    #: The number of this start of the agent. The guard gives each restarted agent a higher number.
    boot: int
    user: str
    #: Facts about the node. `name` is the machine's host name; the owner may choose another name for the node.
    node: NodeInfo
    #: The options about nodes that the user typed on this node.
    plan: NodePlan
    #: The address of the owner to which the agent connected.
    dialled: str
    #: The highest attempt number that the agent knows.
    attempt: int = 0
    kept_out: tuple[DeviceStanding, ...] = ()
    #: Why this node hosts an owner of the job, although another owner answers at the endpoint; empty: it hosts none.
    hosts: str = ""
    #: The OOM kill that ended the node's previous agent, if the guard has found one.
    memory_kill: MemoryKill | None = None


class Foreign(Message, frozen=True, kw_only=True, tag="hello"):
    """The fields that this version can read of a hello from another version."""

    protocol: int
    version: str


class Welcome(Message, frozen=True, kw_only=True):
    """The owner's answer to an agent that it admits."""

    job_id: str
    #: The node's name in this job.
    node: str
    #: The job's specification. The node uses its policies and timers, but takes its workers' commands from its own
    #: options.
    spec: JobSpec
    term: int
    #: The host name of the owner's machine.
    owner: str
    #: The owner's values of the settings with the scope `job`, which apply on every node.
    settings: tuple[JobSetting, ...] = ()


class Refused(Message, frozen=True, kw_only=True):
    """The owner's answer to an agent that it refuses. The agent's run ends."""

    #: Why the owner refuses the agent, for the user.
    reason: str
    #: A command that the user can try.
    hint: str
    #: The exit status with which the agent's run ends.
    code: int


class Told(Message, frozen=True, kw_only=True):
    """A report or heartbeat of the gang protocol, as an agent sends it."""

    report: Report


class Bye(Message, frozen=True, kw_only=True):
    """The agent's last message. The agent has received the job's report, and exits."""


class Finished(Message, frozen=True, kw_only=True):
    """The job has ended. The run of each node ends with the exit code in this report."""

    report: JobReport


class Requeued(Message, frozen=True, kw_only=True):
    """This run of the job has ended, and the platform will start another. Each node's run ends without a report."""


class Asked(Message, frozen=True, kw_only=True):
    """A command of an operator (a user's command on some node). The owner answers commands without a `tag` one after
    another.
    """

    protocol: int
    version: str
    user: str
    host: str
    #: The command in JSON; `holdfast.owner.nodes.operator_lines` has its types.
    line: str
    #: The number of the command; the answer repeats it. 0: none. With numbers, several log requests may be open at
    #: once.
    tag: int = 0


class RemoteLogFile(Noun, frozen=True, kw_only=True):
    """One file of a rank's log, on the node that has the log."""

    path: str
    #: The size of the log file, in bytes.
    size: int


class LogPiece(Noun, frozen=True, kw_only=True):
    """A part of the log of one stream."""

    stream: LogStream
    #: The offset of the first byte of `data`, in bytes from the start of the log or file (see `file`).
    at: int
    data: bytes = b""
    #: The present size of the whole log, in bytes.
    size: int = 0
    #: The inode number of the file in which `at` counts. 0: there is no log yet, or the request did not set `timed`.
    file: int = 0
    #: When the lines were read from the worker: records of `model/log_time_format.py`. Their offsets count from the
    #: start of `data`.
    times: bytes = b""
    #: Whether the times of the log's lines were recorded. Set only together with `files`.
    has_times: bool = False
    #: The files of the log, the oldest first. Set only if `LogFrom.most` in the request is 0.
    files: tuple[RemoteLogFile, ...] = ()


class LogRead(Message, frozen=True, kw_only=True):
    """A node's answer to a request to read a log (`ReadLog`)."""

    id: int
    attempt: int = 0
    role: str = ""
    pieces: tuple[LogPiece, ...] = ()
    #: Whether this log on this node is complete: the attempt has ended, or the rank has moved to another node.
    over: bool = False
    #: Why the log cannot be read, as text for the user; empty: it can.
    trouble: str = ""
    #: The name of the node that answers.
    node: str = ""


class RankAt(Noun, frozen=True, kw_only=True):
    """Where a rank runs in an attempt: its role and node."""

    rank: int
    role: str
    node: str


class Answered(Message, frozen=True, kw_only=True):
    """The owner's answer to a command of an operator."""

    ok: bool
    message: str
    log: LogRead | None = None
    #: Whether the job has ended.
    ended: bool = False
    #: The `tag` of the command that is answered; 0 if the command had no tag.
    tag: int = 0
    #: The number of the attempt that `ranks` is about.
    attempt: int = 0
    ranks: tuple[RankAt, ...] = ()
    ranks_in_all: int = 0
    #: The attempts for which the owner knows where each rank ran.
    attempts: tuple[int, ...] = ()


class LogFrom(Noun, frozen=True, kw_only=True):
    """The position in a stream's log at which to start reading."""

    stream: LogStream
    #: The offset in bytes at which to start. A negative offset counts from the end.
    at: int = 0
    #: If set, read this many of the last lines, and ignore `at`.
    lines: int | None = None
    #: Whether to return the times of the lines too. If so, all files of a rotated log are read.
    timed: bool = False
    #: If `timed`: the file in which `at` counts, as in `LogPiece.file`. 0: read from the start of the log.
    file: int = 0
    #: If `timed`: start at the first line that was read at this time or later, in seconds since the epoch; None: no
    #: limit.
    since: float | None = None
    #: If `timed`: approximate maximum number of bytes to return. 0: return only the position and the list of files.
    most: int | None = None
    #: If `timed`: whether to leave out an unfinished last line while the attempt runs.
    whole: bool = False


class ReadLog(Message, frozen=True, kw_only=True):
    """Read one rank's logs. The node answers with a `LogRead` with the same `id`.

    If `wait` is set, the node answers only when there is output.
    """

    id: int
    rank: int
    #: The number of the attempt; 0: the rank's last attempt on this node.
    attempt: int = 0
    streams: tuple[LogFrom, ...]
    wait: bool = False


class ForgetLog(Message, frozen=True, kw_only=True):
    """Cancel the `ReadLog` request with this `id`."""

    id: int


class RunVerb(Message, frozen=True, kw_only=True):
    """Run a holdfast command on the node. The node returns its output in a `VerbDone` with the same `id`."""

    id: int
    verb: Verb
    words: tuple[str, ...] = ()


class VerbDone(Message, frozen=True, kw_only=True):
    """A node's answer to a `RunVerb` request: the output of the command."""

    id: int
    ok: bool
    text: str


#: The owner's requests to a node for an operator, or for files in the job's directory.
Question = ReadLog | ForgetLog | RunVerb
NodeAnswer = LogRead | VerbDone
