"""What a user submits: a job, its roles, and its policies."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence

from holdfast.lazy_pattern import Lazy
from holdfast.model.check_results import CheckChoice
from holdfast.model.noun_base import Noun
from holdfast.model.runtime_plan import RuntimePlan

NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""The pattern of names of jobs and roles: such a name becomes a directory's name."""


VISIBLE = {"CUDA_VISIBLE_DEVICES": "gpu", "ASCEND_RT_VISIBLE_DEVICES": "npu"}
"""The variables that give a process its devices by number, and the prefix of those devices' names."""


_TOLD = ("PAI_", "HOLDFAST_PEERS", "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_CONFIG")
"""Variables that only jobs that ask for OpenPAI's environment use."""


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
    cpus: float | None = None
    """Whole CPUs that a worker has to itself; below 1 no CPU is bound."""
    devices: int | None = None
    """Accelerators that a worker has to itself; it sees no other. 0: it sees none. None: it sees all."""


class Role(Noun, frozen=True, kw_only=True):
    """The workers of one kind."""

    name: str
    count: int
    """How many there are in the whole gang; with `per_node`, their number on each node that does not give its own."""
    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: Resources = Resources()
    completion: Completion = Completion()
    per_node: bool = False
    """Each node has as many of them as it has slots: the gang's size follows from the nodes that take part."""
    image: str = ""
    """The image of the container for its workers, where a platform runs containers; empty: the job's."""
    script: str = ""
    """A text for `command`: each worker gets it as a file, whose path is the last word of its command line."""
    ports: dict[str, int] = {}
    """Label → the number of ports of each of its workers; they are reserved before the workers start."""


class RestartPolicy(Noun, frozen=True, kw_only=True):
    """How often to try again, and how long to wait: the user's budget, and a wider one for failures that are not the
    user's fault."""

    max_restarts: int = 3
    """The user's budget, charged once per failed attempt of the gang."""
    platform_max_restarts: int = 20
    """The budget for hardware, platform, network and preemption."""
    max_in_a_row: int = 5
    """Failures in a row without progress, of any cause."""
    window_restarts: int = 20
    window_s: float = 86_400.0
    """At most `window_restarts` restarts of any kind within `window_s`."""
    backoff_s: float = 1.0
    backoff_cap_s: float = 300.0
    healthy_s: float = 600.0
    """An attempt that ran this long was healthy: back-off and the row of failures begin again."""
    max_isolations: int = 2
    """How many nodes or devices one job may have excluded, so that a bad job cannot drain a cluster."""
    same_failure: int = 2
    """So many equal failures in a row without any sign of progress end the job; 0: never."""


class Timers(Noun, frozen=True, kw_only=True):
    """Every deadline of the gang protocol, in seconds. `gang.md` argues each."""

    check_s: float = 600.0
    fetch_s: float = 14_400.0
    """Seconds for a node's prerequisites, which are fetched behind its checks."""
    prepare_s: float = 600.0
    start_s: float = 600.0
    grace_s: float = 30.0
    kill_s: float = 30.0
    """Seconds after SIGKILL until a worker that cannot be reaped (D state) counts as lost."""
    peer_wait_s: float = 0.5
    """Seconds that the others have to die of their own cause after an exit that only blames a peer."""
    settle_s: float = 1.5
    """Across nodes: seconds after the last exit in which late evidence of the same attempt still counts."""
    beat_s: float = 5.0
    lease_s: float = 30.0
    drift_s: float = 1.0
    owner_wait_s: float = 60.0
    """Seconds that an owner of several nodes waits for its journal, where it cannot begin an attempt without it."""
    resend_s: float = 1.0
    """Seconds between two sendings of a command, until the phase ends."""


class NodePlan(Noun, frozen=True, kw_only=True):
    """How many nodes a gang has, and how long it waits for them. One node waits for none."""

    least: int = 1
    """With fewer nodes than this the gang cannot begin or continue."""
    most: int = 1
    """Further nodes are spares."""
    spares: int = 0
    """Nodes beyond `most` that the owner waits for during the last call and keeps ready."""
    last_call_s: float = 30.0
    """With `least` but not `most` nodes: seconds that the owner waits for further ones."""
    join_s: float = 600.0
    """Seconds in which `least` nodes must join; after that the start has failed."""
    replace_s: float = 30.0
    """With fewer than `least` nodes left: seconds that the owner waits for a new node."""
    endpoint: str = ""
    """The address that nodes dial, HOST:PORT as it was typed; empty: not known."""
    names: tuple[str, ...] = ()
    """The starter's names of the nodes that it starts, by rank; only the owner has them."""
    grow: bool = False
    """A new node causes a drain of the running attempt, so that it can take part at once."""
    save_s: float = 30.0
    """Seconds that workers that listen may take to save before such a drain."""
    apart: bool = False
    """The owner's machine has no workers: every node, even a single one, is another machine."""
    replaced: bool = False
    """The platform replaces a node that the job leaves out."""

    @property
    def many(self) -> bool:
        """Whether the job may run beyond its owner's machine."""
        return self.most > 1 or self.spares > 0 or self.apart


class PlatformJob(Noun, frozen=True, kw_only=True):
    """The platform's name for a job that it started; equal each time the platform starts it again."""

    platform: str
    """The platform's name: `slurm`."""
    id: str
    """The id that people type: `42`, and `42_7` for a task of an array."""
    number: str = ""
    """The id for the platform's own commands, where it differs: each task of an array has a number of its own. Else
    empty."""
    cluster: str = ""
    """The cluster's name, where there are several; else empty."""


class Requeuing(Noun, frozen=True, kw_only=True):
    """Whether the platform may start the job again when this run of it ends early."""

    possible: bool = False
    at_time_limit: bool = False
    """The same, also when the platform's time limit ends the run."""
    why_not: str = ""
    """Where it is not possible: the platform's setting that forbids it (`Requeue=0`)."""


class JobSpec(Noun, frozen=True, kw_only=True):
    """A job as submitted."""

    name: str
    roles: tuple[Role, ...]
    kind: JobKind = JobKind.TRAINING
    restarts: RestartPolicy = RestartPolicy()
    timers: Timers = Timers()
    checks: tuple[CheckChoice, ...] | None = None
    """Pre-checks in order, with their parameters; None: the default set; (): none (DISABLED)."""
    hang_timeout_s: float | None = None
    hang_warning_s: float = 600.0
    """Without a hang time-out: after so many seconds without any sign of life holdfast prints one warning; 0: never."""
    time_limit_s: float | None = None
    on_subhealth: str = "ignore"
    nodes: NodePlan = NodePlan()
    platform: PlatformJob | None = None
    """The platform's name for it; None: no platform has started it."""
    requeue: Requeuing = Requeuing()
    job_comment: bool = True
    """The cause of an attempt's end is written into the comment of the platform's job."""
    user: str = ""
    """The user who submitted it; empty: the user that runs it."""
    image: str = ""
    """The image of the container for the workers, where a platform runs containers."""
    virtual_cluster: str = ""
    """The platform's account for it: a queue, a partition."""
    parameters: dict[str, str] = {}
    """Names that commands can use."""
    runtime: RuntimePlan = RuntimePlan()
    binds: bool = True
    """Workers have the CPUs and devices of their `Resources` to themselves; False: these are only recorded."""
    pai: bool | None = None
    """Workers get OpenPAI's variables, with the addresses of their peers; None: only where the job asks for them."""

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
    slots: int
    """The number of workers that it can take."""
    devices: tuple[str, ...] = ()
    address: str = ""
    """The address at which its peers reach it; empty: there are no peers."""
    node_rank: int | None = None
    """The `--node-rank` that its user has chosen."""
    cores: int = 0
    memory_bytes: int = 0
    here: bool = False
    """It is the owner's own machine: there is no link between them."""
    labels: tuple[str, ...] = ()
    """The platform's topology of it, the widest first (switches, zones, racks)."""
    cpus: tuple[str, ...] = ()
    """For each of its memory domains the usable cores, `0+64,1+65`, those that other processes are bound to last;
    empty: no worker is bound to a core."""
    near: dict[str, int] = {}
    """Device → the memory domain that it is attached to."""


class GangShape(Noun, frozen=True, kw_only=True):
    """What a node's workers must know about a whole gang of any size."""

    world_size: int = 1
    nodes: int = 1
    index: int = 0
    """This node's place among the gang's nodes, from 0."""
    local: int = 1
    """How many workers this node has."""
    roles: dict[str, int] = {}
    """The number of workers of each role in the whole gang; a role that is missing here has its own `count`."""


class Seat(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's place in an attempt. A PREPARE has one for each worker of a node: default values take no
    room in it."""

    rank: int
    role: str
    role_rank: int
    node: str
    local_rank: int
    device: str = ""
    shares: tuple[str, ...] = ()
    """The devices that it may use where none is its own: a fault of any of them concerns it."""
    visible: tuple[str, ...] = ()
    """The devices that it may see, where some of its node's must not be used; empty: all that it would see anyway."""
    bound: bool = False
    """`visible` are its own, and it sees no other device, even where it has none. It counts them, and LOCAL_RANK, from
    0."""
    cpus: str = ""
    """The CPUs that it is bound to, as the kernel lists them: `0-3,8`; empty: it is not bound."""


def shapes(seats: Sequence[Seat]) -> dict[str, GangShape]:
    """The gang as each node with a seat sees it; nodes in the order of their first seats."""
    local = Counter(seat.node for seat in seats)
    roles = dict(Counter(seat.role for seat in seats))
    return {
        node: GangShape(world_size=len(seats), nodes=len(local), index=index, local=count, roles=roles)
        for index, (node, count) in enumerate(local.items())
    }
