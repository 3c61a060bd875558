"""Imperatives that go out. Performed once or many times, they mean the same."""

from __future__ import annotations

from holdfast.model.base import Message
from holdfast.model.beside import AttemptEnd
from holdfast.model.checks import CheckChoice
from holdfast.model.commands import Command
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence


class Act(Message, frozen=True, kw_only=True):
    """What every action has."""

    cause: str = ""
    """The event that all of this follows from, `agent-reported:17`: its kind, and its number in the job's journal."""


class RunChecks(Act, frozen=True, kw_only=True):
    """Run the pre-checks on these nodes; answer with `ChecksFinished` of the same attempt and round."""

    attempt: int
    round: int
    nodes: tuple[str, ...]
    checks: tuple[CheckChoice, ...] | None
    """None: the default set; (): none."""
    deadline_s: float
    fetch_s: float = 0.0
    """How long the job's prerequisites may take behind the checks, in seconds; 0: there are none."""
    meet_on: str = ""
    """The node that will have rank 0: it holds a port for this attempt's workers and answers with it. Empty: none."""
    ports: dict[str, int] = {}
    """Node → how many ports it is to reserve for this attempt's workers; it answers with them."""


class Send(Act, frozen=True, kw_only=True):
    """Give a command to a node's agent."""

    node: str
    command: Command


class Secure(Act, frozen=True, kw_only=True):
    """Make everything written so far survive a power cut; answer with `JournalSecured` of the same attempt."""

    attempt: int


class CollectEvidence(Act, frozen=True, kw_only=True):
    """The attempt has drained: add logs, memory kills and kernel lines to what the gang knows of it, and answer with
    `EvidenceCollected`."""

    attempt: int
    evidence: AttemptEvidence


class RunHooks(Act, frozen=True, kw_only=True):
    """The attempt has drained and is explained: run the hooks that follow it, and answer with `HooksFinished`.

    Asked again, the nodes run no hook twice.
    """

    attempt: int
    nodes: tuple[str, ...]
    end: AttemptEnd
    limit_s: float
    """So long they may take, all of a node's together, in seconds."""
    within_s: float | None = None
    """What still runs of them is killed by then, whatever its own limit says."""
    stop: bool = False
    """A stop has come: what runs is asked to leave, and none begins."""


class RecordAttempt(Act, frozen=True, kw_only=True):
    """The attempt is explained and decided: write it down before anything follows from it."""

    record: AttemptRecord


class FinishJob(Act, frozen=True, kw_only=True):
    """The job is over, and this is its one report."""

    report: JobReport


class Requeue(Act, frozen=True, kw_only=True):
    """Have the platform start the job again, once this run has ended; answer with `RequeueRefused` where it will not.

    Where the platform has started a run after `run` already, nothing is left to do.
    """

    run: int
    """The run that asks."""
    reason: str
    without: tuple[str, ...] = ()
    """Nodes that the job is not to get again."""


class Say(Act, frozen=True, kw_only=True):
    """One line for the user: what happened and why. Only the loop prints it."""

    text: str


class Avoid(Act, frozen=True, kw_only=True):
    """Place nothing of this job on these devices or nodes any more."""

    names: tuple[str, ...]
    reason: str


Action = RunChecks | Send | Secure | CollectEvidence | RunHooks | RecordAttempt | FinishJob | Requeue | Say | Avoid
