"""Actions: the instructions of the gang (the job's state machine) to the owner's main loop. An action can be repeated
safely.
"""

from __future__ import annotations

from holdfast.model.check_results import CheckChoice
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.gang_protocol import Command
from holdfast.model.noun_base import Message
from holdfast.model.sidecar_ends import AttemptEnd


class Act(Message, frozen=True, kw_only=True):
    """The base class of all actions."""

    #: The event that caused the action, as kind and number in the job's journal: `agent-reported:17`.
    cause: str = ""


class RunChecks(Act, frozen=True, kw_only=True):
    """Run the pre-checks on these nodes. Answer with `ChecksFinished` of the same attempt and round."""

    attempt: int
    round: int
    nodes: tuple[str, ...]
    #: The checks to run; None: the default checks; (): no checks.
    checks: tuple[CheckChoice, ...] | None
    deadline_s: float
    #: Seconds that the job's prerequisites may take after the checks; 0: the job has none.
    fetch_s: float = 0.0
    #: The node of rank 0. It reserves a port for the workers' rendezvous and returns it in its answer. Empty: no node
    #: reserves one.
    meet_on: str = ""
    #: Node → the number of ports to reserve for this attempt's workers. The node's answer has the port numbers.
    ports: dict[str, int] = {}


class Send(Act, frozen=True, kw_only=True):
    """Send a command of the owner to a node's agent."""

    node: str
    command: Command


class Secure(Act, frozen=True, kw_only=True):
    """Flush the journal to disk, so that a power cut loses no recorded event. Answer with `JournalSecured` of the same
    attempt.
    """

    attempt: int


class CollectEvidence(Act, frozen=True, kw_only=True):
    """Add logs, OOM kills and kernel lines to the evidence about a drained attempt. Answer with `EvidenceCollected`."""

    attempt: int
    evidence: AttemptEvidence


class RunHooks(Act, frozen=True, kw_only=True):
    """Run the user's hooks after a drained and explained attempt; answer with `HooksFinished`.

    A node runs each hook once, even if this action is repeated.
    """

    attempt: int
    nodes: tuple[str, ...]
    end: AttemptEnd
    #: Seconds that all hooks of one node may take together.
    limit_s: float
    #: Seconds until every running hook is killed, even if the hook's own limit is later; None: only the hook's limit
    #: applies.
    within_s: float | None = None
    #: Whether a stop was requested. Running hooks then get a signal to exit, and no further hook starts.
    stop: bool = False


class RecordAttempt(Act, frozen=True, kw_only=True):
    """Write the record of an explained attempt with its decision, before the decision takes effect."""

    record: AttemptRecord


class FinishJob(Act, frozen=True, kw_only=True):
    """End the job, and publish its only report."""

    report: JobReport


class Requeue(Act, frozen=True, kw_only=True):
    """Request the platform to start the job again after the end of this run. Answer with `RequeueRefused` if it
    refuses.

    Do nothing if the platform has already started a later run than `run`.
    """

    #: The number of the present run of the job.
    run: int
    reason: str
    #: The nodes that the platform must not give to the job again.
    without: tuple[str, ...] = ()


class Say(Act, frozen=True, kw_only=True):
    """Print one line for the user: an event and its reason."""

    text: str


class Avoid(Act, frozen=True, kw_only=True):
    """Place no worker of this job on these devices or nodes from now on."""

    names: tuple[str, ...]
    reason: str


Action = RunChecks | Send | Secure | CollectEvidence | RunHooks | RecordAttempt | FinishJob | Requeue | Say | Avoid
