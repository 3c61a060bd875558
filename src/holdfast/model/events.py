"""Events: facts in the past tense. The owner writes each event to the journal, then handles it, then performs the
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
    #: The devices and nodes that are excluded from the start, because this machine's record of faults lists them.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The seed for the jitter of pauses between attempts. It is recorded so that a replay computes the same pauses.
    seed: int = 0
    #: Local time minus UTC, in seconds, where the job was submitted. It is recorded so that a replay prints the same
    #: times.
    utc_offset_s: float = 0.0
    #: How often the platform had already started the job before this run.
    run: int = 0


class JobResumed(Message, frozen=True, kw_only=True):
    """The platform has started the job again: all nodes and processes of the previous run are gone.

    The journal of the previous run may end anywhere, even in the middle of an attempt.
    """

    #: The platform's name for the job, for messages: `Slurm job 1234`.
    platform: str
    #: The number of this run, which rises with every start of the job. The event has no effect if this run was already
    #: resumed.
    run: int
    #: Why the platform started the job again, in the platform's own words.
    reason: str
    #: The phrase (kind of exit) for the attempt that was interrupted by the end of the previous run.
    phrase: str = Phrase.PREEMPTED
    #: The job's specification in this run; None: the same as in the previous run.
    spec: JobSpec | None = None
    #: The nodes of this run.
    nodes: tuple[NodeInfo, ...] = ()
    #: The devices and nodes that are excluded from the start of this run, as in `JobSubmitted`.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The last sign of life of the previous run; None: no such sign is later than the last event in its journal.
    seen_at: At | None = None


class PlatformSaid(Message, frozen=True, kw_only=True):
    """The platform (Slurm or Kubernetes) has answered a query about a node or the job.

    The owner adds the answer to the evidence about an attempt.
    """

    #: The attempt about which the owner had asked the platform.
    attempt: int
    #: The node or job that the platform's answer is about: `n3`, `job 1234`.
    subject: str
    words: str
    #: The command with which a user gets the same answer from the platform: `scontrol show node n3`.
    command: str
    #: The node that the platform's answer is about; empty: the answer is about the job.
    node: str = ""


class RequeueRefused(Message, frozen=True, kw_only=True):
    """The platform refuses to start the job again, or has not answered the request in time."""

    #: The number of the present run, as in the refused `Requeue`.
    run: int
    reason: str


class RoomChanged(Message, frozen=True, kw_only=True):
    """The platform has no room now for a missing node of the gang, or it has room again."""

    #: The number by which the platform knows the missing node's place in the gang: the index of its pod.
    place: int
    #: Why there is no room, in the platform's own words. Empty: there is room, so the node is on its way.
    words: str = ""


class NodeJoined(Message, frozen=True, kw_only=True):
    """An agent was admitted to the job. Its node is new (part of the gang, or a spare), or has reconnected."""

    node: NodeInfo
    boot: int
    #: The agent's random identification number. A node that reconnects with the same number keeps its name.
    agent: str = ""
    #: The devices that the node's own record of faults excludes; it may also exclude the whole node.
    kept_out: tuple[DeviceStanding, ...] = ()
    #: The OOM kill that ended the node's earlier agent, if the guard of that agent found one.
    memory_kill: MemoryKill | None = None


class NodeLeft(Message, frozen=True, kw_only=True):
    """A node will not come back: a user has ended its agent, or the program that started the agent knows that the node
    is lost.
    """

    node: str
    boot: int
    reason: str
    #: Whether the node's agent or its platform has confirmed that no process of the job is alive on the node.
    fenced: bool = False


class ChecksFinished(Message, frozen=True, kw_only=True):
    """A round of pre-checks has ended. The gang ignores the result if it is not of the present attempt and round."""

    attempt: int
    round: int
    #: The result of the round of checks.
    state: CheckState
    failure: CheckFailure | None = None
    #: The nodes to leave out. The job may continue with the other nodes.
    avoid: tuple[str, ...] = ()
    #: Whether the failed check wants the job to stop.
    fatal: bool = False
    warnings: tuple[str, ...] = ()
    #: The result of every check in the round.
    taken: ChecksTaken | None = None
    #: The rendezvous address of this attempt's workers. Rank 0's node has reserved the port.
    meeting: Meeting | None = None
    #: Node → the ports that the node has reserved for this attempt's workers.
    ports: dict[str, tuple[int, ...]] = {}
    #: The `cause` of the `RunChecks` action that this event answers.
    cause: str = ""


class ChecksMoved(Message, frozen=True, kw_only=True):
    """A round of pre-checks has made progress. The gang ignores this event; `holdfast show` displays it while the round
    runs.
    """

    attempt: int
    round: int
    taken: ChecksTaken


class CheckFailedRunning(Message, frozen=True, kw_only=True):
    """A check that runs beside the workers has failed and requests more than a warning, so the attempt must stop."""

    attempt: int
    failure: CheckFailure


class AgentReported(Message, frozen=True, kw_only=True):
    """An agent has reported the state of its workers."""

    report: Report


class NodeSilent(Message, frozen=True, kw_only=True):
    """An agent has been silent for longer than its lease.

    Its workers count as lost once the lease has certainly ended.
    """

    node: str
    boot: int
    silent_s: float
    #: How long before the silence was noticed the node's last messages came, in seconds; the latest message first.
    words_s: tuple[float, ...] = ()


class NodeFenced(Message, frozen=True, kw_only=True):
    """The lease of a silent agent has certainly ended, so none of its processes can be alive."""

    node: str
    boot: int


class NodeSignalled(Message, frozen=True, kw_only=True):
    """The guard of a node has received a signal from the platform, and keeps running.

    The event changes nothing in the gang. The owner asks its platform what the signal means, and the answer becomes
    another event.
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

    The event has the consequence for this job too: it comes from the machine's record of faults, which a replay of the
    journal does not read.
    """

    fault: FaultEvent
    remedy: Remedy = Remedy.WATCH
    #: Whether the attempt must stop if it uses the device.
    stop: bool = False
    #: The devices or nodes on which no worker of this job is placed from now on.
    avoid: tuple[str, ...] = ()
    #: Seconds before the stop during which workers that asked for a notice may save and exit.
    save_s: float = 0.0
    #: Seconds for resetting the device before the next attempt, with all tries.
    reset_s: float = 0.0
    #: The devices that must be reset together with this device. An attempt that uses any of them is stopped too.
    group: tuple[str, ...] = ()
    why: str = ""


class HangFound(Message, frozen=True, kw_only=True):
    """No rank has made progress within the hang time-out. The evidence in this event was collected before any worker
    was stopped.
    """

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
    """All events up to the placement of this attempt's ranks are on disk, safe from a power cut.

    `trouble`: why they are not; empty: they are.
    """

    attempt: int
    trouble: str = ""
    #: The `cause` of the `Secure` action that this event answers.
    cause: str = ""


class OwnerRecovered(Message, frozen=True, kw_only=True):
    """The owner has restarted after a crash and replayed its journal. The last reports of agents in it may be out of
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
