"""What owner and nodes say to each other beside the gang protocol's own commands and reports (`model/commands.py`)."""

from __future__ import annotations

from holdfast.decide.view import GangView
from holdfast.model.base import Message
from holdfast.model.commands import Report
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.faults import DeviceStanding
from holdfast.model.jobs import JobSpec, NodeInfo, NodePlan

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


class Asked(Message, frozen=True, kw_only=True):
    """A person's command from another node, the first word on its connection."""

    protocol: int
    version: str
    user: str
    host: str
    line: str
    """As the job's control socket takes it."""


class Answered(Message, frozen=True, kw_only=True):
    """What came of it."""

    ok: bool
    message: str
