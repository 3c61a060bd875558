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


#: Rises when a message changes its meaning: two sides with different numbers do not work together.
PROTOCOL = 2


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
    #: The version of holdfast.
    version: str
    #: `--rdzv-id`, else the job's name and its script: the owner refuses agents of another job.
    job: str
    #: Random; stays the same as long as the node's guard is alive.
    agent: str
    #: Rises each time the guard starts an agent.
    boot: int
    user: str
    #: Its `name` is the machine's host name; the owner may give it another.
    node: NodeInfo
    #: The options as typed on this node.
    plan: NodePlan
    #: The owner's address as the agent has dialled it.
    dialled: str
    #: The highest attempt that the agent knows of.
    attempt: int = 0
    kept_out: tuple[DeviceStanding, ...] = ()
    #: Why this node is started as the owner itself, though another owner answers at the endpoint; empty: it is not.
    hosts: str = ""
    #: Why the earlier agent died, where its guard has found out.
    memory_kill: MemoryKill | None = None


class Foreign(Message, frozen=True, kw_only=True, tag="hello"):
    """The part of a hello that this version can read, where another version wrote it."""

    protocol: int
    version: str


class Welcome(Message, frozen=True, kw_only=True):
    """The owner has admitted an agent."""

    job_id: str
    #: The node's name in this job.
    node: str
    #: Policy and timers are the owner's; the commands of a node's workers are the node's own.
    spec: JobSpec
    term: int
    #: The host name of the owner's machine.
    owner: str
    #: Settings of scope `job` as the owner has resolved them: they count on each node.
    settings: tuple[JobSetting, ...] = ()


class Refused(Message, frozen=True, kw_only=True):
    """The owner refuses an agent; the agent's run ends."""

    #: The difference, in words.
    reason: str
    #: The command to type.
    hint: str
    #: The exit status of the agent's run.
    code: int


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
    #: JSON, one of `holdfast.owner.nodes.operator_lines`.
    line: str
    #: Returned with the answer: questions about several logs may be open at once.
    tag: int = 0


class RemoteLogFile(Noun, frozen=True, kw_only=True):
    """A file of a log on its node."""

    path: str
    #: In bytes.
    size: int


class LogPiece(Noun, frozen=True, kw_only=True):
    """A part of one stream's log."""

    stream: LogStream
    #: Its first byte's place.
    at: int
    data: bytes = b""
    #: Bytes of the whole log at present.
    size: int = 0
    #: The inode number of the file in which `at` counts; 0: there is no log yet, or its times were not requested.
    file: int = 0
    #: When its lines were read: records of `model/log_time_format.py`, whose bytes count from the beginning of
    #: `data`.
    times: bytes = b""
    #: Bytes of the log, where `files` are given.
    has_times: bool = False
    #: Those of the log, the oldest first, where `LogFrom.most` is 0.
    files: tuple[RemoteLogFile, ...] = ()


class LogRead(Message, frozen=True, kw_only=True):
    """A node's answer to `ReadLog`."""

    id: int
    attempt: int = 0
    role: str = ""
    pieces: tuple[LogPiece, ...] = ()
    #: The attempt is over, or the rank is elsewhere by now: this node will have no more of it.
    over: bool = False
    #: Why there is nothing to read, in words.
    trouble: str = ""
    #: The path that was read.
    node: str = ""


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
    #: The job is over.
    ended: bool = False
    #: The id of the question.
    tag: int = 0
    #: The attempt of these ranks.
    attempt: int = 0
    ranks: tuple[RankAt, ...] = ()
    ranks_in_all: int = 0
    #: The ranks whose nodes the owner knows.
    attempts: tuple[int, ...] = ()


class LogFrom(Noun, frozen=True, kw_only=True):
    """The place in a stream from which to read."""

    stream: LogStream
    #: In bytes; a negative number counts from the end.
    at: int = 0
    #: Instead: the number of last lines.
    lines: int | None = None
    #: With the times of its lines, and over all files of a rotated log.
    timed: bool = False
    #: With `timed`: the file in which `at` counts (`LogPiece.file`); 0: from the log's first byte on.
    file: int = 0
    #: With `timed`, instead: from the first line that was read at that moment or later, in seconds since the epoch.
    since: float | None = None
    #: With `timed`: about so many bytes at most; 0: none, only the place and the list of files are wanted.
    most: int | None = None
    #: With `timed`: a line that has no end yet is left for later, while the attempt runs.
    whole: bool = False


class ReadLog(Message, frozen=True, kw_only=True):
    """Read one rank's logs. `LogRead` with the same `id` answers, with `wait` as soon as there are bytes."""

    id: int
    rank: int
    #: 0: the rank's last attempt on this node.
    attempt: int = 0
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


#: What the owner asks a node for a person, or for the job's directory.
Question = ReadLog | ForgetLog | RunVerb
NodeAnswer = LogRead | VerbDone
