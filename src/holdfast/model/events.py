"""Events: facts in the past tense. The owner writes each event to the journal, handles it, and then performs the
actions.
"""

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
    """A job was submitted: the first event of every journal."""

    job_id: str
    spec: JobSpec
    nodes: tuple[NodeInfo, ...]
    #: The devices and nodes that are excluded from the start, by this machine's record of faults.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The seed for the jitter of pauses between attempts. It is recorded, so that a replay computes the same pauses.
    seed: int = 0
    #: Local time minus UTC in seconds, on the machine where the job was submitted. It is recorded, so that a replay
    #: prints the same times.
    utc_offset_s: float = 0.0
    #: How often the platform had already started the job before this run.
    run: int = 0


class JobResumed(Message, frozen=True, kw_only=True):
    """The platform has started the job again. All nodes and processes of the previous run are gone.

    The journal of the previous run may end anywhere, even in the middle of an attempt.
    """

    #: The platform's name for the job, for messages: `Slurm job 1234`.
    platform: str
    #: The number of this run, which rises with each start of the job. If this run was already resumed, the event has no
    #: effect.
    run: int
    #: Why the platform started the job again, in the platform's own words.
    reason: str
    #: The phrase (kind of exit) for the attempt that the end of the previous run has cut off.
    phrase: str = Phrase.PREEMPTED
    #: The job's specification in this run; None: as in the previous run.
    spec: JobSpec | None = None
    #: The nodes of this run.
    nodes: tuple[NodeInfo, ...] = ()
    #: The devices and nodes that are excluded from the start of this run (see `JobSubmitted`).
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The last sign of life of the previous run; None: none is later than its journal's last event.
    seen_at: At | None = None


class PlatformSaid(Message, frozen=True, kw_only=True):
    """The platform (Slurm or Kubernetes) has answered a query about a node or the job.

    The owner adds the answer to the evidence about an attempt.
    """

    #: The attempt about which the owner asked the platform.
    attempt: int
    #: The node or job that the platform's answer is about: `n3`, `job 1234`.
    subject: str
    words: str
    #: The command by which a user gets the same answer from the platform: `scontrol show node n3`.
    command: str
    #: The node that the platform's answer is about; empty: the answer is about the job.
    node: str = ""


class RequeueRefused(Message, frozen=True, kw_only=True):
    """The platform refuses to start the job again, or has not answered the request in time."""

    #: The number of the present run, as in the refused `Requeue`.
    run: int
    reason: str


class RoomChanged(Message, frozen=True, kw_only=True):
    """The platform has no room now for a missing node of the gang, or has room again."""

    #: The platform's number for the missing node's place in the gang: the index of its pod.
    place: int
    #: Why there is no room, in the platform's words. Empty: there is room, so the node is on its way.
    words: str = ""


class NodeJoined(Message, frozen=True, kw_only=True):
    """The owner has admitted an agent. Its node is new (a part of the gang, or a spare), or has reconnected."""

    node: NodeInfo
    boot: int
    #: The agent's random id. A node that reconnects with the same id keeps its name.
    agent: str = ""
    #: The devices that the node's own record of faults excludes, or the whole node.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The OOM kill that ended the node's earlier agent, if the guard of that agent found one.
    memory_kill: MemoryKill | None = None


class NodeLeft(Message, frozen=True, kw_only=True):
    """A node will not come back: a user has ended its agent, or the starter knows that it is lost."""

    node: str
    boot: int
    reason: str
    #: Whether the node's agent or its platform has confirmed that no process of the job is alive on the node.
    fenced: bool = False


class ChecksFinished(Message, frozen=True, kw_only=True):
    """A round of pre-checks has ended. The gang ignores the result of another attempt or round."""

    attempt: int
    round: int
    #: The result of the round of checks.
    state: CheckState
    failure: CheckFailure | None = None
    #: The nodes to leave out. The job may continue with the other nodes.
    avoid: tuple[str, ...] = ()
    #: Whether the failed check demands that the job stops.
    fatal: bool = False
    warnings: tuple[str, ...] = ()
    #: The result of every check in the round.
    taken: ChecksTaken | None = None
    #: The rendezvous address of this attempt's workers, with the port that rank 0's node has reserved.
    meeting: Meeting | None = None
    #: Node → the ports that it has reserved for this attempt's workers.
    ports: dict[str, tuple[int, ...]] = {}
    #: The `cause` of the `RunChecks` action that this event answers.
    cause: str = ""


class ChecksMoved(Message, frozen=True, kw_only=True):
    """A round of pre-checks has made progress. Only `holdfast show` uses this event, while the round runs."""

    attempt: int
    round: int
    taken: ChecksTaken


class CheckFailedRunning(Message, frozen=True, kw_only=True):
    """A check that runs beside the workers has failed and requests more than a warning. The attempt must stop."""

    attempt: int
    failure: CheckFailure


class AgentReported(Message, frozen=True, kw_only=True):
    """An agent has reported the state of its workers."""

    report: Report


class NodeSilent(Message, frozen=True, kw_only=True):
    """An agent has been silent for longer than its lease.

    Its workers count as lost when the lease has certainly ended.
    """

    node: str
    boot: int
    silent_s: float
    #: When the node's last messages came, in seconds before the silence was noticed; the latest message first.
    words_s: tuple[float, ...] = ()


class NodeFenced(Message, frozen=True, kw_only=True):
    """The lease of a silent agent has certainly ended, so no process of it is alive."""

    node: str
    boot: int


class NodeSignalled(Message, frozen=True, kw_only=True):
    """The guard of a node has received a signal from the platform, and runs on.

    The gang ignores the event. The owner asks the platform what the signal means, and the answer becomes another event.
    """

    node: str
    boot: int
    number: int


class StopRequested(Message, frozen=True, kw_only=True):
    """A person or a component requested a stop of the job or of this attempt.

    No other kind of event requests a stop.
    """

    request: StopRequest


class FaultSeen(Message, frozen=True, kw_only=True):
    """A fault of a device or node began, ended, or was momentary.

    The event also has the fault's consequences for this job, because a replay of the journal does not read the
    machine's record of faults.
    """

    fault: FaultEvent
    remedy: Remedy = Remedy.WATCH
    #: Whether an attempt that uses the device must stop.
    stop: bool = False
    #: The devices or nodes that this job avoids from now on.
    avoid: tuple[str, ...] = ()
    #: Seconds before the stop for workers that registered for a notice to save and exit.
    save_s: float = 0.0
    #: Seconds that the reset of the device may take before the next attempt, with all tries.
    reset_s: float = 0.0
    #: The devices that must be reset together with this one. An attempt that uses any of them must stop too.
    group: tuple[str, ...] = ()
    why: str = ""


class HangFound(Message, frozen=True, kw_only=True):
    """No rank has made progress within the hang time-out. The evidence is from before the stop of any worker."""

    attempt: int
    evidence: HangEvidence


class EvidenceCollected(Message, frozen=True, kw_only=True):
    """The evidence of a drained attempt has been collected."""

    attempt: int
    evidence: AttemptEvidence
    #: The `cause` of the `CollectEvidence` action that this event answers.
    cause: str = ""


class HooksFinished(Message, frozen=True, kw_only=True):
    """The hooks after an attempt have run on its nodes."""

    attempt: int
    #: The hooks' failures that make the attempt count as failed.
    failures: tuple[SideFailure, ...] = ()
    #: The nodes that did not report the results of their hooks in time.
    unanswered: tuple[str, ...] = ()
    #: The `cause` of the `RunHooks` action that this event answers.
    cause: str = ""


class JournalSecured(Message, frozen=True, kw_only=True):
    """Every event up to the placement of this attempt's ranks is on disk, safe from a power cut.

    `trouble`: why it is not; empty: it is.
    """

    attempt: int
    trouble: str = ""
    #: The `cause` of the `Secure` action that this event answers.
    cause: str = ""


class OwnerRecovered(Message, frozen=True, kw_only=True):
    """The owner has restarted after a crash and replayed its journal. The agents' last reports in it may be out of
    date.
    """


class Tick(Message, frozen=True, kw_only=True):
    """The time that `Gang.next_wake` returned has come. The gang has no other timer."""


Event = (
    JobSubmitted
    | JobResumed
    | PlatformSaid
    | RequeueRefused
    | RoomChanged
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
