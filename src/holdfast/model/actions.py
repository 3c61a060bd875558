"""Actions: the gang's instructions to the loop. An action that is performed twice has the same effect as one performed
once.
"""

from __future__ import annotations

from holdfast.model.check_results import CheckChoice
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.gang_protocol import Command
from holdfast.model.noun_base import Message
from holdfast.model.sidecar_ends import AttemptEnd


class Act(Message, frozen=True, kw_only=True):
    """The base of all actions."""

    #: The event that caused the action, such as `agent-reported:17`: the event's kind and its number in the job's
    #: journal.
    cause: str = ""


class RunChecks(Act, frozen=True, kw_only=True):
    """Run the pre-checks on these nodes; answer with `ChecksFinished` of the same attempt and round."""

    attempt: int
    round: int
    nodes: tuple[str, ...]
    #: The checks to run; None: the default checks; (): no checks.
    checks: tuple[CheckChoice, ...] | None
    deadline_s: float
    #: Seconds that the job's prerequisites may take after the checks; 0: the job has none.
    fetch_s: float = 0.0
    #: The node that will have rank 0. It reserves a port for this attempt's workers and returns the port in its answer.
    #: Empty: no node reserves one.
    meet_on: str = ""
    #: Node → the number of ports to reserve for this attempt's workers. The node returns the port numbers in its
    #: answer.
    ports: dict[str, int] = {}


class Send(Act, frozen=True, kw_only=True):
    """Send a command to a node's agent."""

    node: str
    command: Command


class Secure(Act, frozen=True, kw_only=True):
    """Flush the journal to disk, so that no recorded event is lost in a power cut; answer with `JournalSecured` of the
    same attempt.
    """

    attempt: int


class CollectEvidence(Act, frozen=True, kw_only=True):
    """Add logs, memory kills and kernel lines to the evidence of a drained attempt; answer with `EvidenceCollected`."""

    attempt: int
    evidence: AttemptEvidence


class RunHooks(Act, frozen=True, kw_only=True):
    """Run the hooks after a drained and explained attempt; answer with `HooksFinished`.

    The nodes run no hook twice, even if the action is repeated.
    """

    attempt: int
    nodes: tuple[str, ...]
    end: AttemptEnd
    #: Seconds that all hooks of a node may take together.
    limit_s: float
    #: Seconds from now until every hook is killed, whatever its own limit is; None: only each hook's limit applies.
    within_s: float | None = None
    #: Whether a stop was requested. If so, running hooks get a signal to exit, and no further hook starts.
    stop: bool = False


class RecordAttempt(Act, frozen=True, kw_only=True):
    """Write the record of an explained and decided attempt, before anything follows from the decision."""

    record: AttemptRecord


class FinishJob(Act, frozen=True, kw_only=True):
    """End the job with its one report."""

    report: JobReport


class Requeue(Act, frozen=True, kw_only=True):
    """Ask the platform to start the job again once this run has ended; answer with `RequeueRefused` if it refuses.

    If the platform has already started a run after `run`, do nothing.
    """

    #: The number of the present run.
    run: int
    reason: str
    #: The platform must not give the job these nodes again.
    without: tuple[str, ...] = ()


class Say(Act, frozen=True, kw_only=True):
    """Print one line for the user: the event and its reason.

    The gang prints nothing itself; the loop performs this action.
    """

    text: str


class Avoid(Act, frozen=True, kw_only=True):
    """Place no worker of this job on these devices or nodes from now on."""

    names: tuple[str, ...]
    reason: str


Action = RunChecks | Send | Secure | CollectEvidence | RunHooks | RecordAttempt | FinishJob | Requeue | Say | Avoid
