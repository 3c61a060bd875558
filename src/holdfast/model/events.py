"""Events: facts in the past tense. The owner writes each to the journal, then handles it, then acts on it."""

from __future__ import annotations

from holdfast.model.check_results import ChecksTaken, CheckState
from holdfast.model.evidence import AttemptEvidence, CheckFailure, HangEvidence, MemoryKill, StopRequest
from holdfast.model.faults import DeviceStanding, FaultEvent, Remedy
from holdfast.model.gang_protocol import Meeting, Report
from holdfast.model.job_spec import JobSpec, NodeInfo
from holdfast.model.noun_base import At, Message
from holdfast.model.phrases import Phrase
from holdfast.model.sidecar_ends import SideFailure


class JobSubmitted(Message, frozen=True, kw_only=True):
    """The first event of every journal."""

    job_id: str
    spec: JobSpec
    nodes: tuple[NodeInfo, ...]
    #: Devices and nodes that this machine's memory of faults excludes from the start.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The seed for the jitter of back-off: it is recorded, so that a replay waits as long.
    seed: int = 0
    #: Local time minus UTC in seconds where the job was submitted: it is recorded, so that a replay prints the same
    #: times.
    utc_offset_s: float = 0.0
    #: How often the platform had started the job before this run.
    run: int = 0


class JobResumed(Message, frozen=True, kw_only=True):
    """The platform has started the job again: all nodes and processes of the run before are gone.

    The earlier journal may end anywhere, also in the middle of an attempt.
    """

    #: The platform's name for the job: `Slurm job 1234`.
    platform: str
    #: Rises with every such start. The number of a run that the journal has already resumed changes nothing.
    run: int
    #: Why the platform restarted the job, in the platform's own words.
    reason: str
    #: The cause for an attempt that the end of the earlier run interrupted.
    phrase: str = Phrase.PREEMPTED
    #: The job as it was started this time; None: unchanged.
    spec: JobSpec | None = None
    #: Devices and nodes that are excluded from the start, as in `JobSubmitted`.
    nodes: tuple[NodeInfo, ...] = ()
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The last sign of life of the earlier run; None: there is none later than its journal.
    seen_at: At | None = None


class PlatformSaid(Message, frozen=True, kw_only=True):
    """The platform's own statement about a node or the job: evidence beside what holdfast itself has seen."""

    #: The attempt in which the owner asked the platform.
    attempt: int
    #: What it is about: `n3`, `job 1234`.
    subject: str
    words: str
    #: The command that shows it: `scontrol show node n3`.
    command: str
    #: The node that it is about; empty: the whole job.
    node: str = ""


class RequeueRefused(Message, frozen=True, kw_only=True):
    """The platform refuses to start the job again, or did not answer in time."""

    #: The number of the action that this answers.
    run: int
    reason: str


class NodeJoined(Message, frozen=True, kw_only=True):
    """An agent has joined and was admitted: a node of the gang, a spare, or an earlier node that is back."""

    node: NodeInfo
    boot: int
    #: The agent's random number: with the same one a node that dials again keeps its name.
    agent: str = ""
    #: Devices and the node, as far as that machine's memory of faults excludes them.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: Why the earlier agent died, where its guard has found out.
    memory_kill: MemoryKill | None = None


class NodeLeft(Message, frozen=True, kw_only=True):
    """A node will not come back: its user has ended it, or its starter knows that it is lost."""

    node: str
    boot: int
    reason: str
    #: None of its processes can be alive: its agent or its platform has confirmed it.
    fenced: bool = False


class ChecksFinished(Message, frozen=True, kw_only=True):
    """A round of pre-checks has ended. A result of another round or attempt is ignored."""

    attempt: int
    round: int
    #: PASS, FAIL or DISABLED.
    state: CheckState
    failure: CheckFailure | None = None
    #: Nodes that the checks want left out; the other nodes may go on.
    avoid: tuple[str, ...] = ()
    #: The failed check asks for the job to stop.
    fatal: bool = False
    warnings: tuple[str, ...] = ()
    #: The round in detail: every check with its result.
    taken: ChecksTaken | None = None
    #: The port that the node of rank 0 holds for this attempt's workers.
    meeting: Meeting | None = None
    #: Node → the ports that it has reserved for this attempt's workers.
    ports: dict[str, tuple[int, ...]] = {}
    #: The number of the action that this answers.
    cause: str = ""


class ChecksMoved(Message, frozen=True, kw_only=True):
    """A round of pre-checks has made progress. It changes nothing: `holdfast show` reads it while the round runs."""

    attempt: int
    round: int
    taken: ChecksTaken


class CheckFailedRunning(Message, frozen=True, kw_only=True):
    """A check during the job failed, and asks for more than a warning: the attempt must stop."""

    attempt: int
    failure: CheckFailure


class AgentReported(Message, frozen=True, kw_only=True):
    """An agent reported the state of its workers."""

    report: Report


class NodeSilent(Message, frozen=True, kw_only=True):
    """An agent has been silent for longer than its lease: its workers count as lost once the lease has surely ended."""

    node: str
    boot: int
    silent_s: float
    #: Seconds before the silence was noticed at which its last messages came, the latest first.
    words_s: tuple[float, ...] = ()


class NodeFenced(Message, frozen=True, kw_only=True):
    """The lease of a silent agent has surely ended: none of its processes can be alive."""

    node: str
    boot: int


class NodeSignalled(Message, frozen=True, kw_only=True):
    """The guard of a node has got a signal of the platform's, and does not exit for it.

    The event changes nothing by itself: the owner asks its platform what the signal means, and the consequence is an
    event of its own.
    """

    node: str
    boot: int
    number: int


class StopRequested(Message, frozen=True, kw_only=True):
    """A person or a component requested a stop of the job (or of this attempt), with a reason. No other event requests
    a kill."""

    request: StopRequest


class FaultSeen(Message, frozen=True, kw_only=True):
    """A device or node fault was raised, cleared, or happened in one moment, with the meaning of its level for this
    job.

    The machine's memory of faults judged the level, and it outlives the job; the result is recorded here, so that a
    replay needs no other memory.
    """

    fault: FaultEvent
    remedy: Remedy = Remedy.WATCH
    #: Stop the attempt if it uses the device.
    stop: bool = False
    #: Place nothing of this job there from now on.
    avoid: tuple[str, ...] = ()
    #: Seconds before the stop in which workers that listen for it may save and exit.
    save_s: float = 0.0
    #: Seconds that resetting the device may take before the next attempt, all tries together.
    reset_s: float = 0.0
    #: Devices that can only be reset together with it: an attempt that uses any of them is stopped too.
    group: tuple[str, ...] = ()
    why: str = ""


class HangFound(Message, frozen=True, kw_only=True):
    """No rank has moved for the hang time-out; the evidence was taken before any worker was stopped."""

    attempt: int
    evidence: HangEvidence


class EvidenceCollected(Message, frozen=True, kw_only=True):
    """All evidence of a drained attempt."""

    attempt: int
    evidence: AttemptEvidence
    #: The number of the action that this answers.
    cause: str = ""


class HooksFinished(Message, frozen=True, kw_only=True):
    """The hooks after an attempt have run on its nodes."""

    attempt: int
    #: The hooks whose failure counts.
    failures: tuple[SideFailure, ...] = ()
    #: Nodes that did not answer in time.
    unanswered: tuple[str, ...] = ()
    #: The number of the action that this answers.
    cause: str = ""


class JournalSecured(Message, frozen=True, kw_only=True):
    """Everything written up to this attempt's placement is safe from a power cut; or why it is not (`trouble`)."""

    attempt: int
    trouble: str = ""
    #: The number of the action that this answers.
    cause: str = ""


class OwnerRecovered(Message, frozen=True, kw_only=True):
    """The owner has restarted after a crash and has replayed its journal; earlier reports of agents may no
    longer hold."""


class Tick(Message, frozen=True, kw_only=True):
    """The moment that `next_wake` named has come. There is no other timer."""


Event = (
    JobSubmitted
    | JobResumed
    | PlatformSaid
    | RequeueRefused
    | NodeJoined
    | NodeLeft
    | ChecksFinished
    | ChecksMoved
    | CheckFailedRunning
    | AgentReported
    | NodeSilent
    | NodeFenced
    | NodeSignalled
    | StopRequested
    | FaultSeen
    | HangFound
    | EvidenceCollected
    | HooksFinished
    | JournalSecured
    | OwnerRecovered
    | Tick
)
