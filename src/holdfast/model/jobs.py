"""What a user submits: a job, its roles, and how it wants to be treated."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence

from holdfast.lazy import Lazy
from holdfast.model.base import Noun
from holdfast.model.checks import CheckChoice
from holdfast.model.runtime import RuntimePlan

NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What jobs and roles may be called: it becomes the name of a directory."""


VISIBLE = {"CUDA_VISIBLE_DEVICES": "gpu", "ASCEND_RT_VISIBLE_DEVICES": "npu"}
"""The variables that tell a process its devices by number, and the prefix of those devices' names."""


_TOLD = ("PAI_", "HOLDFAST_PEERS", "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_CONFIG")
"""Names that only jobs which ask for them have."""


class Kind(enum.StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"


class Completion(Noun, frozen=True, kw_only=True):
    """When a role's workers decide the job (both may be None: then all must have finished).

    `min_failed`: so many failed workers fail the attempt. `min_succeeded`: so many succeeded ones complete the job, and
    the rest are stopped.
    """

    min_failed: int | None = 1
    min_succeeded: int | None = None


class Resources(Noun, frozen=True, kw_only=True):
    """What each worker of a role may use."""

    memory_bytes: int | None = None
    cpus: float | None = None
    """CPUs that a worker has to itself, whole ones; below 1 nothing is bound."""
    devices: int | None = None
    """Accelerators that a worker has to itself; it sees no other. 0: it sees none. None: it sees all."""


class Role(Noun, frozen=True, kw_only=True):
    """The workers of one kind."""

    name: str
    count: int
    """How many there are in the whole gang; with `per_node`, where a node does not say it, on each of its nodes."""
    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: Resources = Resources()
    completion: Completion = Completion()
    per_node: bool = False
    """Each node has as many of them as it has slots: the gang's size follows from the nodes that take part."""
    image: str = ""
    """Of the container that its workers run in, where a platform runs containers; empty: the job's."""
    script: str = ""
    """A text that `command` reads: each worker gets it as a file, whose path is the last word of its command line."""
    ports: dict[str, int] = {}
    """Label → how many ports each of its workers needs; they are reserved before the workers start."""


class RestartPolicy(Noun, frozen=True, kw_only=True):
    """How often to try again, and how long to wait: the user's budget, and a wider one for what is not their fault."""

    max_restarts: int = 3
    """The user's budget, charged once per gang failure."""
    platform_max_restarts: int = 20
    """For hardware, platform, network and preemption."""
    max_in_a_row: int = 5
    """Failures in a row without progress between them, of any cause."""
    window_restarts: int = 20
    window_s: float = 86_400.0
    """At most `window_restarts` restarts of any kind within `window_s`."""
    backoff_s: float = 1.0
    backoff_cap_s: float = 300.0
    healthy_s: float = 600.0
    """An attempt that ran this long was healthy: back-off and the row of failures begin again."""
    max_isolations: int = 2
    """Nodes or devices one job may get avoided, so that a bad job cannot drain a cluster."""
    same_failure: int = 2
    """So many equal failures in a row, with no sign of progress between them, end the job; 0: never."""


class Timers(Noun, frozen=True, kw_only=True):
    """Every deadline of the gang protocol, in seconds. `gang.md` argues each."""

    check_s: float = 600.0
    fetch_s: float = 14_400.0
    """For a node's prerequisites, which are fetched behind its checks."""
    prepare_s: float = 600.0
    start_s: float = 600.0
    grace_s: float = 30.0
    kill_s: float = 30.0
    """After SIGKILL: how long until a worker that cannot be reaped (D state) counts as lost."""
    peer_wait_s: float = 0.5
    """An exit that only blames a peer leaves the others this long to die of their own cause."""
    settle_s: float = 1.5
    """Across nodes: how long late evidence of the same attempt is waited for after the last exit."""
    beat_s: float = 5.0
    lease_s: float = 30.0
    drift_s: float = 1.0
    owner_wait_s: float = 60.0
    """How long an owner of several nodes waits for its journal, where it can begin no attempt without it."""
    resend_s: float = 1.0
    """A command is sent again this often until the phase is left."""


class NodePlan(Noun, frozen=True, kw_only=True):
    """How many nodes a gang has, and how long it waits for them. One node: nothing is waited for."""

    least: int = 1
    """With fewer nodes than this the gang cannot begin, or go on."""
    most: int = 1
    """More than these are spares."""
    spares: int = 0
    """So many nodes beyond `most` are waited for during the last call, and kept ready."""
    last_call_s: float = 30.0
    """With `least` but not `most` nodes: how long further ones are waited for."""
    join_s: float = 600.0
    """How long `least` nodes may take to say hello; after that the start has failed."""
    replace_s: float = 30.0
    """With fewer than `least` nodes left: how long a newcomer is waited for."""
    endpoint: str = ""
    """Where nodes dial the owner, HOST:PORT as it was typed; empty: not told."""
    names: tuple[str, ...] = ()
    """What its starter calls the nodes that it starts, by rank; the owner alone has it."""
    grow: bool = False
    """A newcomer has the running attempt drained, so that it can take part at once."""
    save_s: float = 30.0
    """How long workers that listen may take to save before such a drain."""
    apart: bool = False
    """The owner's machine has no workers: a node, and be it the only one, is another machine."""
    replaced: bool = False
    """The platform gives the job another node for one that it leaves out."""

    @property
    def many(self) -> bool:
        """Whether the job may leave its owner's machine."""
        return self.most > 1 or self.spares > 0 or self.apart


class PlatformJob(Noun, frozen=True, kw_only=True):
    """What the platform that started a job calls it; the same each time the platform starts it again."""

    platform: str
    """The platform's name: `slurm`."""
    id: str
    """As people type it: `42`, and `42_7` for a task of an array."""
    number: str = ""
    """As its own commands want it, where that is another: each task of an array has a number of its own. Else empty."""
    cluster: str = ""
    """Which of several; empty: there is one, or it is not told."""


class Requeuing(Noun, frozen=True, kw_only=True):
    """Whether the platform may start the job again when this run of it ends early."""

    possible: bool = False
    at_time_limit: bool = False
    """Also when the platform's time limit ends the run."""
    why_not: str = ""
    """Where it is not possible: the platform's own setting that says so (`Requeue=0`)."""


class JobSpec(Noun, frozen=True, kw_only=True):
    """A job as submitted."""

    name: str
    roles: tuple[Role, ...]
    kind: Kind = Kind.TRAINING
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
    """What the platform calls it; None: no platform has started it."""
    requeue: Requeuing = Requeuing()
    job_comment: bool = True
    """What an attempt died of goes into the comment of the platform's job."""
    user: str = ""
    """Who has submitted it; empty: the user that runs it."""
    image: str = ""
    """Of the container that workers run in, where a platform runs containers."""
    virtual_cluster: str = ""
    """The share of the platform that it is charged to: a queue, a partition."""
    parameters: dict[str, str] = {}
    """Names that commands refer to."""
    runtime: RuntimePlan = RuntimePlan()
    binds: bool = True
    """Workers have the CPUs and devices of their `Resources` to themselves; False: these are only written down."""
    pai: bool | None = None
    """Workers get OpenPAI's variables, and with them where their peers are; None: where the job asks for them."""

    @property
    def world_size(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def tells_peers(self) -> bool:
        """Whether workers get OpenPAI's variables, and with them hosts and reserved ports of their peers.

        Where the job does not say it: if a role has ports, a door for debugging is open, or a command or a variable
        of the job names one of them.
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
    """How many workers it takes."""
    devices: tuple[str, ...] = ()
    address: str = ""
    """Where its peers reach it; empty: there are none."""
    node_rank: int | None = None
    """The place that its user has chosen for it."""
    cores: int = 0
    memory_bytes: int = 0
    here: bool = False
    """It is the owner's own machine: no link lies between."""
    labels: tuple[str, ...] = ()
    """What the platform says of its neighbourhood, the widest first (switches, zones, racks)."""
    cpus: tuple[str, ...] = ()
    """For each of its memory domains the cores that may be used, `0+64,1+65`, those that other processes are bound to
    last; empty: no worker is bound to any."""
    near: dict[str, int] = {}
    """Device → which of these domains it is attached to."""


class GangShape(Noun, frozen=True, kw_only=True):
    """What a node's workers have to know of the whole gang, however large it is."""

    world_size: int = 1
    nodes: int = 1
    index: int = 0
    """This node's place among the gang's nodes, from 0."""
    local: int = 1
    """How many workers this node has."""
    roles: dict[str, int] = {}
    """How many workers each role has in the whole gang; one that stands not in it has its own `count`."""


class Seat(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's place in an attempt. A PREPARE has one for each worker of a node: what is not said takes no room."""

    rank: int
    role: str
    role_rank: int
    node: str
    local_rank: int
    device: str = ""
    shares: tuple[str, ...] = ()
    """The devices it may drive where none is its own: what becomes of any of them concerns it."""
    visible: tuple[str, ...] = ()
    """The devices it may see, where some of its node's must not be used; empty: all that it would see anyway."""
    bound: bool = False
    """`visible` are its own, and it sees no other, also where it has none. It counts them, and LOCAL_RANK, from 0."""
    cpus: str = ""
    """The CPUs that it is bound to, as the kernel lists them: `0-3,8`; empty: it is bound to none."""


def shapes(seats: Sequence[Seat]) -> dict[str, GangShape]:
    """The gang as each node with a seat sees it; nodes in the order of their first seats."""
    local = Counter(seat.node for seat in seats)
    roles = dict(Counter(seat.role for seat in seats))
    return {
        node: GangShape(world_size=len(seats), nodes=len(local), index=index, local=count, roles=roles)
        for index, (node, count) in enumerate(local.items())
    }
