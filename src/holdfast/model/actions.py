"""Actions: what the owner's machine asks the loop to do. Performing an action twice has the effect of performing it
once."""

from __future__ import annotations

from holdfast.model.check_results import CheckChoice
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.gang_protocol import Command
from holdfast.model.noun_base import Message
from holdfast.model.sidecar_ends import AttemptEnd


class Act(Message, frozen=True, kw_only=True):
    """What every action has."""

    #: The event that caused the action, `agent-reported:17`: its kind, and its number in the job's journal.
    cause: str = ""


class RunChecks(Act, frozen=True, kw_only=True):
    """Run the pre-checks on these nodes; answer with `ChecksFinished` of the same attempt and round."""

    attempt: int
    round: int
    nodes: tuple[str, ...]
    #: None: the default set; (): none.
    checks: tuple[CheckChoice, ...] | None
    deadline_s: float
    #: Seconds that the job's prerequisites may take behind the checks; 0: there are none.
    fetch_s: float = 0.0
    #: The node that will have rank 0: it holds a port for this attempt's workers and answers with it. Empty: no node
    #: does.
    meet_on: str = ""
    #: Node → how many ports it reserves for this attempt's workers; the node answers with them.
    ports: dict[str, int] = {}


class Send(Act, frozen=True, kw_only=True):
    """Send a command to a node's agent."""

    node: str
    command: Command


class Secure(Act, frozen=True, kw_only=True):
    """Write everything recorded so far to the disk, safe from a power cut; answer with `JournalSecured` of the same
    attempt."""

    attempt: int


class CollectEvidence(Act, frozen=True, kw_only=True):
    """The attempt has drained: add logs, memory kills and kernel lines to the gang's evidence, and answer with
    `EvidenceCollected`."""

    attempt: int
    evidence: AttemptEvidence


class RunHooks(Act, frozen=True, kw_only=True):
    """The attempt has drained and is explained: run the hooks that follow it, and answer with `HooksFinished`.

    When asked again, the nodes run no hook twice.
    """

    attempt: int
    nodes: tuple[str, ...]
    end: AttemptEnd
    #: Seconds that all hooks of a node may take together.
    limit_s: float
    #: Hooks that still run at this moment are killed, even within their own limit.
    within_s: float | None = None
    #: A stop was requested: running hooks are asked to exit, and no further hook starts.
    stop: bool = False


class RecordAttempt(Act, frozen=True, kw_only=True):
    """The attempt is explained and decided: write its record before any consequence follows."""

    record: AttemptRecord


class FinishJob(Act, frozen=True, kw_only=True):
    """The job has ended, and this is its one report."""

    report: JobReport


class Requeue(Act, frozen=True, kw_only=True):
    """Ask the platform to start the job again once this run has ended; answer with `RequeueRefused` where it refuses.

    Where the platform has already started a run after `run`, there is nothing to do.
    """

    #: The run that asks.
    run: int
    reason: str
    #: Nodes that the job must not get again.
    without: tuple[str, ...] = ()


class Say(Act, frozen=True, kw_only=True):
    """One line for the user: what happened and why. Only the loop prints it."""

    text: str


class Avoid(Act, frozen=True, kw_only=True):
    """Place nothing of this job on these devices or nodes from now on."""

    names: tuple[str, ...]
    reason: str


Action = RunChecks | Send | Secure | CollectEvidence | RunHooks | RecordAttempt | FinishJob | Requeue | Say | Avoid
