"""Past-tense facts that come in. Each is written to the journal, then handled, then acted on."""

from __future__ import annotations

from holdfast.model.base import At, Message
from holdfast.model.beside import SideFailure
from holdfast.model.checks import ChecksTaken, CheckState
from holdfast.model.commands import Meeting, Report
from holdfast.model.evidence import AttemptEvidence, CheckFailure, HangEvidence, MemoryKill, StopRequest
from holdfast.model.faults import DeviceStanding, FaultEvent, Remedy
from holdfast.model.jobs import JobSpec, NodeInfo
from holdfast.model.phrases import Phrase


class JobSubmitted(Message, frozen=True, kw_only=True):
    """The first event of every journal."""

    job_id: str
    spec: JobSpec
    nodes: tuple[NodeInfo, ...]
    kept_out: tuple[DeviceStanding, ...] = ()
    """Devices and nodes that the machine's own standings keep out from the start."""
    seed: int = 0
    """For the jitter of back-off: recorded, so that a replay waits as long."""
    utc_offset_s: float = 0.0
    """Local time minus UTC where the job was submitted: recorded, so that a replay names times in the same words."""
    run: int = 0
    """How often the platform had started the job before this."""


class JobResumed(Message, frozen=True, kw_only=True):
    """The platform has started the job again: every node and every process of before is gone.

    The journal of before may end anywhere, also in the middle of an attempt.
    """

    platform: str
    """What it calls the job: `Slurm job 1234`."""
    run: int
    """Rises with every such start. The number of a run that was resumed already changes nothing."""
    reason: str
    """Why the platform did so, in its own words."""
    phrase: str = Phrase.PREEMPTED
    """What an attempt died of that the end of the run before has cut short."""
    spec: JobSpec | None = None
    """The job as it was started this time; None: as before."""
    nodes: tuple[NodeInfo, ...] = ()
    """Those that are there from the start, as in `JobSubmitted`."""
    kept_out: tuple[DeviceStanding, ...] = ()
    seen_at: At | None = None
    """The last sign of life of the run before; None: there is none later than its journal."""


class PlatformSaid(Message, frozen=True, kw_only=True):
    """The platform's own word on a node or on the job: evidence beside what holdfast has seen itself."""

    attempt: int
    """The one in which the question was asked."""
    subject: str
    """`n3`, `job 1234`"""
    words: str
    command: str
    """What shows it: `scontrol show node n3`."""
    node: str = ""
    """The node that it is about; empty: the whole job."""


class RequeueRefused(Message, frozen=True, kw_only=True):
    """The platform will not start the job again, or could not be asked in time."""

    run: int
    """Of the action that this answers."""
    reason: str


class NodeJoined(Message, frozen=True, kw_only=True):
    """An agent has said hello and was let in: a node of the gang, a spare, or one of before that is back."""

    node: NodeInfo
    boot: int
    agent: str = ""
    """Its random number: under the same one a node that dials again keeps its name."""
    kept_out: tuple[DeviceStanding, ...] = ()
    """What the machine's own standings keep out."""
    memory_kill: MemoryKill | None = None
    """What the agent of before died of, where its guard has found one."""


class NodeLeft(Message, frozen=True, kw_only=True):
    """A node will not come back: its user has ended it, or what starts nodes knows that it is gone."""

    node: str
    boot: int
    reason: str
    fenced: bool = False
    """None of its processes can live: its agent has said so, or its platform."""


class ChecksFinished(Message, frozen=True, kw_only=True):
    """A round of pre-checks is over. An answer of another round or attempt is ignored."""

    attempt: int
    round: int
    state: CheckState
    """PASS, FAIL or DISABLED."""
    failure: CheckFailure | None = None
    avoid: tuple[str, ...] = ()
    """Nodes the checks want left out; the others may go on."""
    fatal: bool = False
    """The failed check asks for the job to stop."""
    warnings: tuple[str, ...] = ()
    taken: ChecksTaken | None = None
    """The round as its readers see it: every check with its result."""
    meeting: Meeting | None = None
    """The port that the node of rank 0 holds for this attempt's workers."""
    ports: dict[str, tuple[int, ...]] = {}
    """Node → the ports that it has reserved for this attempt's workers."""
    cause: str = ""
    """Of the action that this answers."""


class ChecksMoved(Message, frozen=True, kw_only=True):
    """A round of pre-checks has come further. It changes nothing: `holdfast show` reads it while the round runs."""

    attempt: int
    round: int
    taken: ChecksTaken


class CheckFailedRunning(Message, frozen=True, kw_only=True):
    """A check that runs during the job failed, and asks for more than a warning: the attempt must stop."""

    attempt: int
    failure: CheckFailure


class AgentReported(Message, frozen=True, kw_only=True):
    """An agent told the state of its workers."""

    report: Report


class NodeSilent(Message, frozen=True, kw_only=True):
    """No word of an agent for longer than its lease: its workers count as lost once the lease is surely over."""

    node: str
    boot: int
    silent_s: float
    words_s: tuple[float, ...] = ()
    """How long ago its last words came, the latest first."""


class NodeFenced(Message, frozen=True, kw_only=True):
    """The lease of a silent agent has surely ended: none of its processes can live."""

    node: str
    boot: int


class NodeSignalled(Message, frozen=True, kw_only=True):
    """A signal of the platform's has reached the guard of a node, which does not leave for it.

    It changes nothing by itself: the owner asks its platform what the signal means, and what that leads to is an event
    of its own.
    """

    node: str
    boot: int
    number: int


class StopRequested(Message, frozen=True, kw_only=True):
    """A person or a component asked for the job (or this attempt) to stop, with a reason. The one way in to kill."""

    request: StopRequest


class FaultSeen(Message, frozen=True, kw_only=True):
    """A device or node fault was raised, cleared, or happened in one moment, and what its level means for this job.

    The level was judged by the machine's own standings, which outlive the job; what it meant stands here, so that a
    replay needs no other memory.
    """

    fault: FaultEvent
    remedy: Remedy = Remedy.WATCH
    stop: bool = False
    """Stop the attempt if it uses the device."""
    avoid: tuple[str, ...] = ()
    """Place nothing of this job there any more."""
    save_s: float = 0.0
    """Before the stop: how long workers that listen for it may take to save and leave."""
    reset_s: float = 0.0
    """How long resetting the device may take before the next attempt, all tries together."""
    group: tuple[str, ...] = ()
    """What the device can only be reset together with: an attempt that uses any of these is stopped too."""
    why: str = ""


class HangFound(Message, frozen=True, kw_only=True):
    """Nothing has moved for the hang time-out; the evidence was taken before anything was stopped."""

    attempt: int
    evidence: HangEvidence


class EvidenceCollected(Message, frozen=True, kw_only=True):
    """All that is known of a drained attempt."""

    attempt: int
    evidence: AttemptEvidence
    cause: str = ""
    """Of the action that this answers."""


class HooksFinished(Message, frozen=True, kw_only=True):
    """The hooks after an attempt have run on its nodes."""

    attempt: int
    failures: tuple[SideFailure, ...] = ()
    """Those whose failure counts."""
    unanswered: tuple[str, ...] = ()
    """Nodes that have not answered in time."""
    cause: str = ""
    """Of the action that this answers."""


class JournalSecured(Message, frozen=True, kw_only=True):
    """What was written up to this attempt's placement survives a power cut; or why it does not (`trouble`)."""

    attempt: int
    trouble: str = ""
    cause: str = ""
    """Of the action that this answers."""


class OwnerRecovered(Message, frozen=True, kw_only=True):
    """The owner is back after a crash and has replayed its journal; what agents said before is not known to hold."""


class Tick(Message, frozen=True, kw_only=True):
    """The moment `next_wake` named has come. The only timer there is."""


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
