"""What owner and nodes say to each other beside the gang protocol's own commands and reports
(`model/gang_protocol.py`)."""

from __future__ import annotations

import enum

from holdfast.decide.gang_view import GangView
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import MemoryKill
from holdfast.model.faults import DeviceStanding
from holdfast.model.gang_protocol import Report
from holdfast.model.job_settings import JobSetting
from holdfast.model.job_spec import JobSpec, NodeInfo, NodePlan
from holdfast.model.noun_base import Message, Noun


class LogStream(enum.StrEnum):
    """Which log of a rank."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Verb(enum.StrEnum):
    """A command that one node runs for a person at another node."""

    SHOW = "show"
    DEVICES = "devices"
    RELEASE = "release"
    REPORT_FAULT = "faults report"


PROTOCOL = 2
"""Rises when a message changes its meaning: two sides with different numbers do not work together."""


class Moved(Message, frozen=True, kw_only=True):
    """The gang is in another phase, or excludes another device."""

    view: GangView


class Recorded(Message, frozen=True, kw_only=True):
    """An attempt is explained and decided: its report tells the nodes what to write beside its logs, and whether to
    trust their checks."""

    record: AttemptRecord


class ReadFaults(Message, frozen=True, kw_only=True):
    """The node's fault log has a new entry."""


class Hello(Message, frozen=True, kw_only=True):
    """An agent's first message on a connection."""

    protocol: int
    version: str
    """The version of holdfast."""
    job: str
    """`--rdzv-id`, else the job's name and its script: the owner refuses agents of another job."""
    agent: str
    """Random; stays the same as long as the node's guard is alive."""
    boot: int
    """Rises each time the guard starts an agent."""
    user: str
    node: NodeInfo
    """Its `name` is the machine's host name; the owner may give it another."""
    plan: NodePlan
    """The options as typed on this node."""
    dialled: str
    """The owner's address as the agent has dialled it."""
    attempt: int = 0
    """The highest attempt that the agent knows of."""
    kept_out: tuple[DeviceStanding, ...] = ()
    hosts: str = ""
    """Why this node is started as the owner itself, though another owner answers at the endpoint; empty: it is not."""
    memory_kill: MemoryKill | None = None
    """Why the earlier agent died, where its guard has found out."""


class Foreign(Message, frozen=True, kw_only=True, tag="hello"):
    """The part of a hello that this version can read, where another version wrote it."""

    protocol: int
    version: str


class Welcome(Message, frozen=True, kw_only=True):
    """The owner has admitted an agent."""

    job_id: str
    node: str
    """The node's name in this job."""
    spec: JobSpec
    """Policy and timers are the owner's; the commands of a node's workers are the node's own."""
    term: int
    owner: str
    """The host name of the owner's machine."""
    #: Settings of scope `job` as the owner has resolved them: they count on each node.
    settings: tuple[JobSetting, ...] = ()


class Refused(Message, frozen=True, kw_only=True):
    """The owner refuses an agent; the agent's run ends."""

    reason: str
    """The difference, in words."""
    hint: str
    """The command to type."""
    code: int
    """The exit status of the agent's run."""


class Told(Message, frozen=True, kw_only=True):
    """The gang protocol's report of an agent, or its heartbeat."""

    report: Report


class Bye(Message, frozen=True, kw_only=True):
    """The agent has the job's report, and exits."""


class Finished(Message, frozen=True, kw_only=True):
    """The job is over: each node's run ends with this report's code."""

    report: JobReport


class Requeued(Message, frozen=True, kw_only=True):
    """This run of the job is over, and the platform starts another one: each node's run ends, without a report."""


class Asked(Message, frozen=True, kw_only=True):
    """A person's command from a node. Without a tag, the next command on the connection waits for the answer."""

    protocol: int
    version: str
    user: str
    host: str
    line: str
    """JSON, one of `holdfast.owner.nodes.operator_lines`."""
    tag: int = 0
    """Returned with the answer: questions about several logs may be open at once."""


class RemoteLogFile(Noun, frozen=True, kw_only=True):
    """A file of a log on its node."""

    path: str
    size: int
    """In bytes."""


class LogPiece(Noun, frozen=True, kw_only=True):
    """A part of one stream's log."""

    stream: LogStream
    at: int
    """Its first byte's place."""
    data: bytes = b""
    size: int = 0
    """Bytes of the whole log at present."""
    file: int = 0
    """The inode number of the file in which `at` counts; 0: there is no log yet, or its times were not requested."""
    times: bytes = b""
    """When its lines were read: records of `model/log_time_format.py`, whose bytes count from the beginning of
    `data`."""
    has_times: bool = False
    """Bytes of the log, where `files` are given."""
    files: tuple[RemoteLogFile, ...] = ()
    """Those of the log, the oldest first, where `LogFrom.most` is 0."""


class LogRead(Message, frozen=True, kw_only=True):
    """A node's answer to `ReadLog`."""

    id: int
    attempt: int = 0
    role: str = ""
    pieces: tuple[LogPiece, ...] = ()
    over: bool = False
    """The attempt is over, or the rank is elsewhere by now: this node will have no more of it."""
    trouble: str = ""
    """Why there is nothing to read, in words."""
    node: str = ""
    """The path that was read."""


class RankAt(Noun, frozen=True, kw_only=True):
    """Where a rank is in an attempt."""

    rank: int
    role: str
    node: str


class Answered(Message, frozen=True, kw_only=True):
    """The result of the question."""

    ok: bool
    message: str
    log: LogRead | None = None
    ended: bool = False
    """The job is over."""
    tag: int = 0
    """The id of the question."""
    attempt: int = 0
    """The attempt of these ranks."""
    ranks: tuple[RankAt, ...] = ()
    ranks_in_all: int = 0
    attempts: tuple[int, ...] = ()
    """The ranks whose nodes the owner knows."""


class LogFrom(Noun, frozen=True, kw_only=True):
    """The place in a stream from which to read."""

    stream: LogStream
    at: int = 0
    """In bytes; a negative number counts from the end."""
    lines: int | None = None
    """Instead: the number of last lines."""
    timed: bool = False
    """With the times of its lines, and over all files of a rotated log."""
    file: int = 0
    """With `timed`: the file in which `at` counts (`LogPiece.file`); 0: from the log's first byte on."""
    since: float | None = None
    """With `timed`, instead: from the first line that was read at that moment or later, in seconds since the epoch."""
    most: int | None = None
    """With `timed`: about so many bytes at most; 0: none, only the place and the list of files are wanted."""
    whole: bool = False
    """With `timed`: a line that has no end yet is left for later, while the attempt runs."""


class ReadLog(Message, frozen=True, kw_only=True):
    """Read one rank's logs. `LogRead` with the same `id` answers, with `wait` as soon as there are bytes."""

    id: int
    rank: int
    attempt: int = 0
    """0: the rank's last attempt on this node."""
    streams: tuple[LogFrom, ...]
    wait: bool = False


class ForgetLog(Message, frozen=True, kw_only=True):
    """The answer to that `ReadLog` is no longer wanted."""

    id: int


class RunVerb(Message, frozen=True, kw_only=True):
    """Run one of holdfast's own commands on the node, and answer with its output (`VerbDone` with the same `id`)."""

    id: int
    verb: Verb
    words: tuple[str, ...] = ()


class VerbDone(Message, frozen=True, kw_only=True):
    """A node's answer to `RunVerb`."""

    id: int
    ok: bool
    text: str


Question = ReadLog | ForgetLog | RunVerb
"""What the owner asks a node for a person, or for the job's directory."""
NodeAnswer = LogRead | VerbDone
