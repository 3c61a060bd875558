"""What a user submits: a job, its roles, and its policies."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence

from holdfast.lazy_pattern import Lazy
from holdfast.model.check_results import CheckChoice
from holdfast.model.noun_base import Noun
from holdfast.model.runtime_plan import RuntimePlan

#: The pattern of names of jobs and roles: such a name becomes a directory's name.
NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


#: The variables that give a process its devices by number, and the prefix of those devices' names.
VISIBLE = {"CUDA_VISIBLE_DEVICES": "gpu", "ASCEND_RT_VISIBLE_DEVICES": "npu"}


#: Variables that only jobs that ask for OpenPAI's environment use.
_TOLD = ("PAI_", "HOLDFAST_PEERS", "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_CONFIG")


class JobKind(enum.StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"


class Completion(Noun, frozen=True, kw_only=True):
    """When the workers of a role decide the job (both may be None: then all must have finished).

    `min_failed`: so many failed workers fail the attempt. `min_succeeded`: so many succeeded ones complete the job, and
    holdfast stops the rest.
    """

    min_failed: int | None = 1
    min_succeeded: int | None = None


class Resources(Noun, frozen=True, kw_only=True):
    """What each worker of a role may use."""

    memory_bytes: int | None = None
    #: Whole CPUs that a worker has to itself; below 1 no CPU is bound.
    cpus: float | None = None
    #: Accelerators that a worker has to itself; it sees no other. 0: it sees none. None: it sees all.
    devices: int | None = None


class Role(Noun, frozen=True, kw_only=True):
    """The workers of one kind."""

    name: str
    #: How many there are in the whole gang; with `per_node`, their number on each node that does not give its own.
    count: int
    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: Resources = Resources()
    completion: Completion = Completion()
    #: Each node has as many of them as it has slots: the gang's size follows from the nodes that take part.
    per_node: bool = False
    #: The image of the container for its workers, where a platform runs containers; empty: the job's.
    image: str = ""
    #: A text for `command`: each worker gets it as a file, whose path is the last word of its command line.
    script: str = ""
    #: Label → the number of ports of each of its workers; they are reserved before the workers start.
    ports: dict[str, int] = {}


class RestartPolicy(Noun, frozen=True, kw_only=True):
    """How often to try again, and how long to wait: the user's budget, and a wider one for failures that are not the
    user's fault."""

    #: The user's budget, charged once per failed attempt of the gang.
    max_restarts: int = 3
    #: The budget for hardware, platform, network and preemption.
    platform_max_restarts: int = 20
    #: Failures in a row without progress, of any cause.
    max_in_a_row: int = 5
    window_restarts: int = 20
    #: At most `window_restarts` restarts of any kind within `window_s`.
    window_s: float = 86_400.0
    backoff_s: float = 1.0
    backoff_cap_s: float = 300.0
    #: An attempt that ran this long was healthy: back-off and the row of failures begin again.
    healthy_s: float = 600.0
    #: How many nodes or devices one job may have excluded, so that a bad job cannot drain a cluster.
    max_isolations: int = 2
    #: So many equal failures in a row without any sign of progress end the job; 0: never.
    same_failure: int = 2


class Timers(Noun, frozen=True, kw_only=True):
    """Every deadline of the gang protocol, in seconds. `gang.md` argues each."""

    check_s: float = 600.0
    #: Seconds for a node's prerequisites, which are fetched behind its checks.
    fetch_s: float = 14_400.0
    prepare_s: float = 600.0
    start_s: float = 600.0
    grace_s: float = 30.0
    #: Seconds after SIGKILL until a worker that cannot be reaped (D state) counts as lost.
    kill_s: float = 30.0
    #: Seconds that the others have to die of their own cause after an exit that only blames a peer.
    peer_wait_s: float = 0.5
    #: Across nodes: seconds after the last exit in which late evidence of the same attempt still counts.
    settle_s: float = 1.5
    beat_s: float = 5.0
    lease_s: float = 30.0
    drift_s: float = 1.0
    #: Seconds that an owner of several nodes waits for its journal, where it cannot begin an attempt without it.
    owner_wait_s: float = 60.0
    #: Seconds between two sendings of a command, until the phase ends.
    resend_s: float = 1.0


class NodePlan(Noun, frozen=True, kw_only=True):
    """How many nodes a gang has, and how long it waits for them. One node waits for none."""

    #: With fewer nodes than this the gang cannot begin or continue.
    least: int = 1
    #: Further nodes are spares.
    most: int = 1
    #: Nodes beyond `most` that the owner waits for during the last call and keeps ready.
    spares: int = 0
    #: With `least` but not `most` nodes: seconds that the owner waits for further ones.
    last_call_s: float = 30.0
    #: Seconds in which `least` nodes must join; after that the start has failed.
    join_s: float = 600.0
    #: With fewer than `least` nodes left: seconds that the owner waits for a new node.
    replace_s: float = 30.0
    #: The address that nodes dial, HOST:PORT as it was typed; empty: not known.
    endpoint: str = ""
    #: The starter's names of the nodes that it starts, by rank; only the owner has them.
    names: tuple[str, ...] = ()
    #: A new node causes a drain of the running attempt, so that it can take part at once.
    grow: bool = False
    #: Seconds that workers that listen may take to save before such a drain.
    save_s: float = 30.0
    #: The owner's machine has no workers: every node, even a single one, is another machine.
    apart: bool = False
    #: The platform replaces a node that the job leaves out.
    replaced: bool = False

    @property
    def many(self) -> bool:
        """Whether the job may run beyond its owner's machine."""
        return self.most > 1 or self.spares > 0 or self.apart


class PlatformJob(Noun, frozen=True, kw_only=True):
    """The platform's name for a job that it started; equal each time the platform starts it again."""

    #: The platform's name: `slurm`.
    platform: str
    #: The id that people type: `42`, and `42_7` for a task of an array.
    id: str
    #: The id for the platform's own commands, where it differs: each task of an array has a number of its own. Else
    #: empty.
    number: str = ""
    #: The cluster's name, where there are several; else empty.
    cluster: str = ""


class Requeuing(Noun, frozen=True, kw_only=True):
    """Whether the platform may start the job again when this run of it ends early."""

    possible: bool = False
    #: The same, also when the platform's time limit ends the run.
    at_time_limit: bool = False
    #: Where it is not possible: the platform's setting that forbids it (`Requeue=0`).
    why_not: str = ""


class JobSpec(Noun, frozen=True, kw_only=True):
    """A job as submitted."""

    name: str
    roles: tuple[Role, ...]
    kind: JobKind = JobKind.TRAINING
    restarts: RestartPolicy = RestartPolicy()
    timers: Timers = Timers()
    #: Pre-checks in order, with their parameters; None: the default set; (): none (DISABLED).
    checks: tuple[CheckChoice, ...] | None = None
    hang_timeout_s: float | None = None
    #: Without a hang time-out: after so many seconds without any sign of life holdfast prints one warning; 0: never.
    hang_warning_s: float = 600.0
    time_limit_s: float | None = None
    on_subhealth: str = "ignore"
    nodes: NodePlan = NodePlan()
    #: The platform's name for it; None: no platform has started it.
    platform: PlatformJob | None = None
    requeue: Requeuing = Requeuing()
    #: The cause of an attempt's end is written into the comment of the platform's job.
    job_comment: bool = True
    #: The user who submitted it; empty: the user that runs it.
    user: str = ""
    #: The image of the container for the workers, where a platform runs containers.
    image: str = ""
    #: The platform's account for it: a queue, a partition.
    virtual_cluster: str = ""
    #: Names that commands can use.
    parameters: dict[str, str] = {}
    runtime: RuntimePlan = RuntimePlan()
    #: Workers have the CPUs and devices of their `Resources` to themselves; False: these are only recorded.
    binds: bool = True
    #: Workers get OpenPAI's variables, with the addresses of their peers; None: only where the job asks for them.
    pai: bool | None = None

    @property
    def world_size(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def tells_peers(self) -> bool:
        """Whether workers get OpenPAI's variables, with hosts and reserved ports of their peers.

        Where the job does not decide it: if a role has ports, sshd is on, or a command or a variable of the job names
        one of them.
        """
        if self.pai is not None:
            return self.pai
        if self.runtime.ssh is not None or any(role.ports for role in self.roles):
            return True
        words = [word for role in self.roles for word in (*role.command, role.script, *role.env.values())]
        words += [word for daemon in self.runtime.daemons for word in daemon.command]
        words += [word for hook in self.runtime.hooks for word in hook.command]
        return any(name in word for word in words for name in _TOLD)


class NodeInfo(Noun, frozen=True, kw_only=True):
    """A machine that can hold workers."""

    name: str
    #: The number of workers that it can take.
    slots: int
    devices: tuple[str, ...] = ()
    #: The address at which its peers reach it; empty: there are no peers.
    address: str = ""
    #: The `--node-rank` that its user has chosen.
    node_rank: int | None = None
    cores: int = 0
    memory_bytes: int = 0
    #: It is the owner's own machine: there is no link between them.
    here: bool = False
    #: The platform's topology of it, the widest first (switches, zones, racks).
    labels: tuple[str, ...] = ()
    #: For each of its memory domains the usable cores, `0+64,1+65`, those that other processes are bound to last;
    #: empty: no worker is bound to a core.
    cpus: tuple[str, ...] = ()
    #: Device → the memory domain that it is attached to.
    near: dict[str, int] = {}


class GangShape(Noun, frozen=True, kw_only=True):
    """What a node's workers must know about a whole gang of any size."""

    world_size: int = 1
    nodes: int = 1
    #: This node's place among the gang's nodes, from 0.
    index: int = 0
    #: How many workers this node has.
    local: int = 1
    #: The number of workers of each role in the whole gang; a role that is missing here has its own `count`.
    roles: dict[str, int] = {}


class Seat(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's place in an attempt. A PREPARE has one for each worker of a node: default values take no
    room in it."""

    rank: int
    role: str
    role_rank: int
    node: str
    local_rank: int
    device: str = ""
    #: The devices that it may use where none is its own: a fault of any of them concerns it.
    shares: tuple[str, ...] = ()
    #: The devices that it may see, where some of its node's must not be used; empty: all that it would see anyway.
    visible: tuple[str, ...] = ()
    #: `visible` are its own, and it sees no other device, even where it has none. It counts them, and LOCAL_RANK, from
    #: 0.
    bound: bool = False
    #: The CPUs that it is bound to, as the kernel lists them: `0-3,8`; empty: it is not bound.
    cpus: str = ""


def shapes(seats: Sequence[Seat]) -> dict[str, GangShape]:
    """The gang as each node with a seat sees it; nodes in the order of their first seats."""
    local = Counter(seat.node for seat in seats)
    roles = dict(Counter(seat.role for seat in seats))
    return {
        node: GangShape(world_size=len(seats), nodes=len(local), index=index, local=count, roles=roles)
        for index, (node, count) in enumerate(local.items())
    }
