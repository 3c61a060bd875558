"""The job as a user submits it: its roles and its policies."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Sequence

from holdfast.lazy_pattern import Lazy
from holdfast.model.check_results import CheckChoice
from holdfast.model.noun_base import Noun
from holdfast.model.runtime_plan import RuntimePlan

#: The pattern of names of jobs and roles. Names become directory names.
NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


#: The variables that select a process's devices by number → the prefix of these devices' names.
VISIBLE = {"CUDA_VISIBLE_DEVICES": "gpu", "ASCEND_RT_VISIBLE_DEVICES": "npu"}


#: A job that uses variables with these prefixes gets OpenPAI's environment (see `tells_peers`).
_TOLD = ("PAI_", "HOLDFAST_PEERS", "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_CONFIG")


class JobKind(enum.StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"


class Completion(Noun, frozen=True, kw_only=True):
    """The completion policy of a role: when its workers decide the job's end. If both are None all workers must end.

    `min_failed`: this many failed workers fail the attempt. `min_succeeded`: this many succeeded workers complete the
    job, and holdfast stops the rest.
    """

    min_failed: int | None = 1
    min_succeeded: int | None = None


class Resources(Noun, frozen=True, kw_only=True):
    """The resources of each worker of a role."""

    memory_bytes: int | None = None
    #: The number of whole CPUs that each worker has to itself; below 1 no CPU is bound.
    cpus: float | None = None
    #: The number of accelerators that each worker has to itself; it sees no other. 0: it sees none. None: it sees all.
    devices: int | None = None


class Role(Noun, frozen=True, kw_only=True):
    """The workers of one kind, which run the same command."""

    name: str
    #: The number of workers in the whole gang; with `per_node`, the number on each node that does not set its own.
    count: int
    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: Resources = Resources()
    completion: Completion = Completion()
    #: Each node has as many workers of the role as it has slots, so the present nodes decide the gang's size.
    per_node: bool = False
    #: The image of the workers' container, on platforms that run containers; empty: the job's.
    image: str = ""
    #: A script for `command`: each worker gets it as a file, whose path is the last argument of its command line.
    script: str = ""
    #: Label → the number of ports for each worker; nodes reserve them before the workers start.
    ports: dict[str, int] = {}


class RestartPolicy(Noun, frozen=True, kw_only=True):
    """The limits and pauses of restarts.

    The user's budget is for the job's own failures, a wider one for all others.
    """

    #: The user's budget: restarts after failures of the workload or of unknown cause.
    max_restarts: int = 3
    #: The platform's budget: restarts after failures of hardware, platform and network, and after preemption.
    platform_max_restarts: int = 20
    #: Maximum number of failures in a row without progress, of any cause.
    max_in_a_row: int = 5
    window_restarts: int = 20
    #: At most `window_restarts` restarts of any kind within `window_s`.
    window_s: float = 86_400.0
    backoff_s: float = 1.0
    backoff_cap_s: float = 300.0
    #: An attempt that ran this many seconds was healthy: back-off and the row of failures begin again.
    healthy_s: float = 600.0
    #: Maximum number of nodes or devices that one job may exclude, so that a bad job cannot drain a cluster.
    max_isolations: int = 2
    #: This many equal failures in a row without any sign of progress end the job; 0: never.
    same_failure: int = 2


class Timers(Noun, frozen=True, kw_only=True):
    """The deadlines of the gang protocol, in seconds. `gang.md` gives the reason for each."""

    check_s: float = 600.0
    #: Seconds for a node's prerequisites, which it fetches after its checks.
    fetch_s: float = 14_400.0
    prepare_s: float = 600.0
    start_s: float = 600.0
    grace_s: float = 30.0
    #: Seconds that processes which an ended rank left running may take before they get SIGTERM.
    leftover_s: float = 10.0
    #: Seconds after SIGKILL until a worker that cannot be reaped (D state) counts as lost.
    kill_s: float = 30.0
    #: Seconds to wait for other failures after an exit that only blames a peer.
    peer_wait_s: float = 0.5
    #: With several nodes: seconds after the last exit during which late evidence of the attempt still counts.
    settle_s: float = 1.5
    beat_s: float = 5.0
    lease_s: float = 30.0
    drift_s: float = 1.0
    #: Seconds that the owner of several nodes waits for a failing journal before it ends the job.
    owner_wait_s: float = 60.0
    #: Seconds after which a command is repeated, until the phase ends.
    resend_s: float = 1.0


class NodePlan(Noun, frozen=True, kw_only=True):
    """The number of nodes of a gang, and how long it waits for them. A job on one node waits for none."""

    #: The minimum number of nodes to begin or continue.
    least: int = 1
    #: The maximum number of nodes of an attempt; further nodes are spares.
    most: int = 1
    #: The number of spares for which the owner waits during the last call, and which it keeps ready.
    spares: int = 0
    #: With `least` nodes there, the first start waits until no further node has joined for this many seconds.
    last_call_s: float = 30.0
    #: Seconds within which `least` nodes must join; otherwise the start fails.
    join_s: float = 600.0
    #: Seconds that the owner waits for a new node if fewer than `least` are left.
    replace_s: float = 30.0
    #: The address that nodes dial, HOST:PORT as the user typed it; empty: not known.
    endpoint: str = ""
    #: The names of the nodes by rank, as their starter knows them; only the owner has them.
    names: tuple[str, ...] = ()
    #: Whether a new node stops the running attempt, so that it can take part at once.
    grow: bool = False
    #: Seconds that workers that listen may take to save before that stop.
    save_s: float = 30.0
    #: Whether the owner's machine has no workers, so that every node, even the only one, is another machine.
    apart: bool = False
    #: Whether the platform replaces a node that the job avoids.
    replaced: bool = False

    @property
    def many(self) -> bool:
        """Whether the job may run beyond its owner's machine."""
        return self.most > 1 or self.spares > 0 or self.apart


class PlatformJob(Noun, frozen=True, kw_only=True):
    """The platform's names for a job that it started; they stay the same when the platform starts it again."""

    #: The platform's name: `slurm`.
    platform: str
    #: The id as users type it: `42`, or `42_7` for a task of an array.
    id: str
    #: The id for the platform's own commands, if it differs (each task of an array has a number of its own); else
    #: empty.
    number: str = ""
    #: The cluster's name, if there are several clusters; else empty.
    cluster: str = ""


class Requeuing(Noun, frozen=True, kw_only=True):
    """The platform's permission to start the job again if this run of it ends early."""

    possible: bool = False
    #: Whether the platform may also start the job again after its time limit has ended the run.
    at_time_limit: bool = False
    #: The platform's setting that forbids it (`Requeue=0`); empty if it is possible.
    why_not: str = ""


class JobSpec(Noun, frozen=True, kw_only=True):
    """A job as the user submitted it."""

    name: str
    roles: tuple[Role, ...]
    kind: JobKind = JobKind.TRAINING
    restarts: RestartPolicy = RestartPolicy()
    timers: Timers = Timers()
    #: The pre-checks in order, with their parameters; None: the default set; (): none (DISABLED).
    checks: tuple[CheckChoice, ...] | None = None
    hang_timeout_s: float | None = None
    #: Without a hang time-out: warn once an attempt, after this many seconds without any sign of life; 0: never.
    hang_warning_s: float = 600.0
    time_limit_s: float | None = None
    on_subhealth: str = "ignore"
    nodes: NodePlan = NodePlan()
    #: The platform's names for the job; None: no platform has started it.
    platform: PlatformJob | None = None
    requeue: Requeuing = Requeuing()
    #: Whether holdfast writes the cause of an attempt's end into the comment of the platform's job.
    job_comment: bool = True
    #: The user who submitted the job; empty: the user that runs it.
    user: str = ""
    #: The image of the workers' container, on platforms that run containers.
    image: str = ""
    #: The platform's queue or partition for the job.
    virtual_cluster: str = ""
    #: Parameters by name, which commands can use.
    parameters: dict[str, str] = {}
    runtime: RuntimePlan = RuntimePlan()
    #: Whether workers are bound to the CPUs and devices of their `Resources`; False: these are only recorded.
    binds: bool = True
    #: Whether workers get OpenPAI's variables with their peers' addresses; None: only if the job uses them.
    pai: bool | None = None
    #: Whether workers that share a machine start in a directory of their own each, as in containers.
    task_directories: bool = False

    @property
    def world_size(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def tells_peers(self) -> bool:
        """Whether workers get OpenPAI's variables, with hosts and reserved ports of their peers.

        If `pai` is None, they do if a role has ports, sshd is on, or a command or variable of the job names one of
        them.
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
    """A machine that can run workers of the job."""

    name: str
    #: The number of workers that the node can run.
    slots: int
    devices: tuple[str, ...] = ()
    #: The address at which peers reach the node; empty: it has no peers.
    address: str = ""
    #: The `--node-rank` that the user chose.
    node_rank: int | None = None
    cores: int = 0
    memory_bytes: int = 0
    #: Whether it is the owner's own machine.
    here: bool = False
    #: The node's place in the platform's topology, the widest first (switches, zones, racks).
    labels: tuple[str, ...] = ()
    #: The usable cores of each memory domain, `0+64,1+65`; cores to which other processes are bound come last. Empty:
    #: no worker is bound to a core.
    cpus: tuple[str, ...] = ()
    #: Device → the index of the memory domain to which it is attached.
    near: dict[str, int] = {}


class GangShape(Noun, frozen=True, kw_only=True):
    """The facts about the whole gang that a node's workers need. Its size does not grow with the gang."""

    world_size: int = 1
    nodes: int = 1
    #: The index of this node among the gang's nodes, from 0.
    index: int = 0
    #: The number of workers of this node.
    local: int = 1
    #: The number of workers of each role in the whole gang; a missing role has its own `count`.
    roles: dict[str, int] = {}


class Seat(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's place in an attempt. A PREPARE has one for each worker of a node, so default values are left out."""

    rank: int
    role: str
    role_rank: int
    node: str
    local_rank: int
    device: str = ""
    #: The devices that the worker shares with others, if it has none of its own. A fault of any of them affects it.
    shares: tuple[str, ...] = ()
    #: The devices that the worker may see, if some devices of its node must not be used; empty: no restriction.
    visible: tuple[str, ...] = ()
    #: Whether the devices in `visible` belong to this worker alone, so that it sees no other device, even if it has
    #: none. It numbers its devices, and LOCAL_RANK, from 0.
    bound: bool = False
    #: The CPUs to which the worker is bound, as the kernel lists them: `0-3,8`; empty: it is not bound.
    cpus: str = ""


def shapes(seats: Sequence[Seat]) -> dict[str, GangShape]:
    """Return the gang's shape for each node with a seat; nodes in the order of their first seats."""
    local = Counter(seat.node for seat in seats)
    roles = dict(Counter(seat.role for seat in seats))
    return {
        node: GangShape(world_size=len(seats), nodes=len(local), index=index, local=count, roles=roles)
        for index, (node, count) in enumerate(local.items())
    }


def asked_devices(spec: JobSpec, role: Role) -> int | None:
    """Return the number of devices that each worker of a role has to itself; None: the role does not set it."""
    return role.resources.devices if spec.binds else None


def asked_cpus(spec: JobSpec, role: Role) -> int:
    """Return the number of whole CPUs that each worker of a role has to itself; 0: the worker is not bound.

    A part of a CPU (0.5) cannot be reserved.
    """
    cpus = role.resources.cpus
    return math.ceil(cpus) if spec.binds and cpus is not None and cpus >= 1 else 0


def binds(spec: JobSpec) -> bool:
    """Return whether any role reserves devices or CPUs for each of its workers."""
    return any(asked_devices(spec, role) is not None or asked_cpus(spec, role) for role in spec.roles)


class JobSetting(Noun, frozen=True, kw_only=True):
    """One setting that was set where the owner runs. The owner sends no setting that has its default."""

    name: str
    value: str | bool | int | float | tuple[str, ...] | None
    #: The strength of the setting's source, as in `holdfast.settings.resolved_settings.SettingSource`.
    source: int
    #: The name of the source: `--log-size`, `/etc/holdfast/config.yaml`.
    origin: str
