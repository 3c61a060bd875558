"""What owner and nodes say to each other beside the gang protocol's own commands and reports (`model/commands.py`)."""

from __future__ import annotations

import enum

from holdfast.decide.view import GangView
from holdfast.model.base import Message, Noun
from holdfast.model.commands import Report
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import MemoryKill
from holdfast.model.faults import DeviceStanding
from holdfast.model.jobs import JobSpec, NodeInfo, NodePlan


class LogStream(enum.StrEnum):
    """A log of one rank."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Verb(enum.StrEnum):
    """A command that one node runs for a person at another."""

    SHOW = "show"
    DEVICES = "devices"
    RELEASE = "release"
    REPORT_FAULT = "faults report"


PROTOCOL = 1
"""Rises when a message changes its meaning: two sides of different numbers do not work together."""


class Moved(Message, frozen=True, kw_only=True):
    """The gang is in another phase, or leaves another device out."""

    view: GangView


class Recorded(Message, frozen=True, kw_only=True):
    """An attempt is explained and decided: what the nodes write beside its logs, and whether they trust their checks,
    follows from its report."""

    record: AttemptRecord


class ReadFaults(Message, frozen=True, kw_only=True):
    """The node's fault log has something new."""


class Hello(Message, frozen=True, kw_only=True):
    """An agent's first word on a connection."""

    protocol: int
    version: str
    """Of holdfast."""
    job: str
    """`--rdzv-id`, else the job's name and its script: agents of another job are refused."""
    agent: str
    """Random; stays the same as long as the node's guard lives."""
    boot: int
    """Rises each time that the guard starts an agent."""
    user: str
    node: NodeInfo
    """Its `name` is what the machine calls itself; the owner may give it another."""
    plan: NodePlan
    """As typed on this node."""
    dialled: str
    """The owner's address as the agent has dialled it."""
    attempt: int = 0
    """The highest attempt that the agent knows of."""
    kept_out: tuple[DeviceStanding, ...] = ()
    hosts: str = ""
    """Why this node means to host the owner itself, though another one answers at the endpoint; empty: it does not."""
    memory_kill: MemoryKill | None = None
    """What the agent of before died of, where its guard has found one."""


class Foreign(Message, frozen=True, kw_only=True, tag="hello"):
    """A hello that this version cannot read further than this, since another one wrote it."""

    protocol: int
    version: str


class Welcome(Message, frozen=True, kw_only=True):
    """The owner has let an agent in."""

    job_id: str
    node: str
    """What the node is called in this job."""
    spec: JobSpec
    """Policy and timers are the owner's; what the workers of a node run is the node's own."""
    term: int
    owner: str
    """The host name of the owner's machine."""


class Refused(Message, frozen=True, kw_only=True):
    """The owner does not let an agent in; the agent's run ends."""

    reason: str
    """What differs, in words."""
    hint: str
    """What to type."""
    code: int
    """The exit status of the agent's run."""


class Told(Message, frozen=True, kw_only=True):
    """The gang protocol's report of an agent, or its heartbeat."""

    report: Report


class Bye(Message, frozen=True, kw_only=True):
    """The agent has the job's report, and leaves."""


class Finished(Message, frozen=True, kw_only=True):
    """The job is over: each node's run ends with this report's code."""

    report: JobReport


class Requeued(Message, frozen=True, kw_only=True):
    """This run of the job is over, and the platform starts another one: each node's run ends, without a report."""


class Asked(Message, frozen=True, kw_only=True):
    """A person's command from some node. Without a tag, the next one on the connection waits for the answer."""

    protocol: int
    version: str
    user: str
    host: str
    line: str
    """JSON, one of `holdfast.loop.nodes.lines`."""
    tag: int = 0
    """Comes back with the answer: questions about several logs may be open at once."""


class LogFile(Noun, frozen=True, kw_only=True):
    """A file of a log on its node."""

    path: str
    size: int
    """In bytes."""


class LogPiece(Noun, frozen=True, kw_only=True):
    """A part of one stream's log."""

    stream: LogStream
    at: int
    """Where it begins, in bytes."""
    data: bytes = b""
    size: int = 0
    """Of the whole log by now, in bytes."""
    file: int = 0
    """The number (inode) of the file in which `at` counts; 0: there is no log yet, or its times were not asked for."""
    times: bytes = b""
    """When its lines were read: records of `model/log_times.py`, whose bytes count from the beginning of `data`."""
    has_times: bool = False
    """Of the log. Said where `files` are."""
    files: tuple[LogFile, ...] = ()
    """Those of the log, the oldest first, where `LogFrom.most` is 0."""


class LogRead(Message, frozen=True, kw_only=True):
    """A node's answer to `ReadLog`."""

    id: int
    attempt: int = 0
    role: str = ""
    pieces: tuple[LogPiece, ...] = ()
    over: bool = False
    """The attempt is over, or the rank is elsewhere by now: nothing more will come of it here."""
    trouble: str = ""
    """Why there is nothing to read, in words."""
    node: str = ""
    """Where it was read."""


class RankAt(Noun, frozen=True, kw_only=True):
    """Where a rank is in an attempt."""

    rank: int
    role: str
    node: str


class Answered(Message, frozen=True, kw_only=True):
    """What came of it."""

    ok: bool
    message: str
    log: LogRead | None = None
    ended: bool = False
    """The job is over."""
    tag: int = 0
    """Of the question."""
    attempt: int = 0
    """Whose ranks these are."""
    ranks: tuple[RankAt, ...] = ()
    ranks_in_all: int = 0
    attempts: tuple[int, ...] = ()
    """Those of which the owner knows where their ranks were."""


class LogFrom(Noun, frozen=True, kw_only=True):
    """Where to read a stream from."""

    stream: LogStream
    at: int = 0
    """In bytes; below zero: so many before the end."""
    lines: int | None = None
    """Instead: so many last lines."""
    timed: bool = False
    """With the times of its lines, and over all files of a log that was put aside."""
    file: int = 0
    """With `timed`: the file in which `at` counts (`LogPiece.file`); 0: from the log's first byte on."""
    since: float | None = None
    """With `timed`, instead: from the first line that was read at that moment or later, in seconds since the epoch."""
    most: int | None = None
    """With `timed`: so many bytes at most, about; 0: none, for only the place is wanted, and which files there are."""
    whole: bool = False
    """With `timed`: a line that has no end yet is left for later, while the attempt goes on."""


class ReadLog(Message, frozen=True, kw_only=True):
    """Read in one rank's logs. `LogRead` with the same `id` answers, with `wait` as soon as there is something."""

    id: int
    rank: int
    attempt: int = 0
    """0: the last one that the rank has on this node."""
    streams: tuple[LogFrom, ...]
    wait: bool = False


class ForgetLog(Message, frozen=True, kw_only=True):
    """Nothing waits for the answer to that `ReadLog` any more."""

    id: int


class RunVerb(Message, frozen=True, kw_only=True):
    """Run one of our own commands on the node, and answer with what it prints (`VerbDone` with the same `id`)."""

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
