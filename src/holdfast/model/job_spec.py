"""The specification of a job, as a user submits it: its roles and its policies."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Sequence

from holdfast.lazy_pattern import Lazy
from holdfast.model.check_results import CheckChoice
from holdfast.model.noun_base import Noun
from holdfast.model.runtime_plan import RuntimePlan

#: The pattern for the names of jobs and roles. The names become names of directories.
NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


#: Environment variable that selects devices by number → the prefix of these devices' names.
VISIBLE = {"CUDA_VISIBLE_DEVICES": "gpu", "ASCEND_RT_VISIBLE_DEVICES": "npu", "HOLDFAST_DEVICES": "pretend"}
#: The variable with the numbers of a worker's devices, of any kind, in a job of this machine's queue.
QUEUE_DEVICES = "HOLDFAST_DEVICES"


#: Prefixes of OpenPAI's environment variables. If a job's commands or variables contain one, its workers get OpenPAI's
#: environment (see `tells_peers`).
_TOLD = ("PAI_", "HOLDFAST_PEERS", "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_CONFIG")


class JobKind(enum.StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"


class Completion(Noun, frozen=True, kw_only=True):
    """The completion policy of a role: how many ended workers of the role end the job.

    If both fields are None, the job ends when all workers have ended.

    `min_failed`: this many failed workers fail the attempt. `min_succeeded`: this many succeeded workers complete the
    job, and holdfast stops the rest.
    """

    min_failed: int | None = 1
    min_succeeded: int | None = None


class Resources(Noun, frozen=True, kw_only=True):
    """The resources that each worker of a role gets."""

    memory_bytes: int | None = None
    #: The number of CPUs for each worker, rounded up to whole CPUs, which are reserved for it. None, or a number below
    #: 1: none is reserved.
    cpus: float | None = None
    #: The number of accelerators reserved for each worker, which sees no others. 0: it sees none. None: it sees all.
    devices: int | None = None


class Role(Noun, frozen=True, kw_only=True):
    """A role: the workers that run one command."""

    name: str
    #: The number of the role's workers in the whole gang. With `per_node`: the number on each node, unless the node's
    #: `slots` set it.
    count: int
    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: Resources = Resources()
    completion: Completion = Completion()
    #: Whether each node runs as many workers of this role as it has slots. The number of nodes then decides the size of
    #: the gang.
    per_node: bool = False
    #: The image of the workers' container, on platforms that run containers; empty: the job's image.
    image: str = ""
    #: The text of a script for `command`. Each worker gets it as a file; the file's path is the last argument of the
    #: command.
    script: str = ""
    #: Label → the number of such ports for each worker. Nodes reserve them before the workers start.
    ports: dict[str, int] = {}


class RestartPolicy(Noun, frozen=True, kw_only=True):
    """The limits on restarts, and the pauses before them.

    Failures of the workload are charged to the user's budget, all others to the platform's larger budget.
    """

    #: The user's budget: the number of restarts after failures of the workload or of unknown cause.
    max_restarts: int = 3
    #: The platform's budget: the number of restarts after failures of hardware, platform and network, and after
    #: preemption.
    platform_max_restarts: int = 20
    #: Maximum number of failures in a row, of any cause, without progress between them.
    max_in_a_row: int = 5
    window_restarts: int = 20
    #: At most `window_restarts` restarts of any kind are made within this many seconds.
    window_s: float = 86_400.0
    backoff_s: float = 1.0
    backoff_cap_s: float = 300.0
    #: An attempt counts as healthy after this many seconds. The pauses and the count of failures in a row then start
    #: anew.
    healthy_s: float = 600.0
    #: One job may avoid at most this many nodes or devices, so that a faulty job cannot exclude a whole cluster.
    max_isolations: int = 2
    #: The job ends after this many equal failures in a row without a sign of progress; 0: it does not end for that
    #: reason.
    same_failure: int = 2


class Timers(Noun, frozen=True, kw_only=True):
    """The deadlines of the gang protocol, in seconds. `gang.md` gives the reason for each."""

    check_s: float = 600.0
    #: Seconds that a node may take to fetch its prerequisites after its checks.
    fetch_s: float = 14_400.0
    prepare_s: float = 600.0
    start_s: float = 600.0
    grace_s: float = 30.0
    #: Seconds until SIGTERM for processes that an exited worker left running.
    leftover_s: float = 10.0
    #: A worker that is not reaped (state D) counts as lost this many seconds after SIGKILL.
    kill_s: float = 30.0
    #: Seconds to wait for other workers' failures after an exit that only blames a peer.
    peer_wait_s: float = 0.5
    #: With several nodes: seconds after the last exit in which the owner still accepts evidence about the attempt.
    settle_s: float = 1.5
    beat_s: float = 5.0
    lease_s: float = 30.0
    drift_s: float = 1.0
    #: With several nodes: seconds that the owner waits for a journal that cannot be written, before it ends the job.
    owner_wait_s: float = 60.0
    #: The owner repeats a command that a node has not obeyed after this many seconds, until the phase ends.
    resend_s: float = 1.0


class NodePlan(Noun, frozen=True, kw_only=True):
    """The number of nodes of a gang, and how long to wait for them. A job on one node does not wait."""

    #: The minimum number of nodes to begin or continue the job.
    least: int = 1
    #: The maximum number of nodes of an attempt. Further nodes become spares.
    most: int = 1
    #: The number of spare nodes. The owner waits for them during `last_call_s`, and keeps them ready.
    spares: int = 0
    #: The first start waits until `least` nodes have joined, and no other node has joined for this many seconds.
    last_call_s: float = 30.0
    #: Seconds within which `least` nodes must join; otherwise the start fails.
    join_s: float = 600.0
    #: Seconds that the owner waits for new nodes if fewer than `least` are left.
    replace_s: float = 30.0
    #: Seconds that the owner waits for new nodes if fewer than `most`, but at least `least`, are left. The wait ends if
    #: the platform has no room for another node. 0: no wait.
    refill_s: float = 0.0
    #: The owner's address, to which nodes connect, as the user typed it: HOST:PORT; empty: not known.
    endpoint: str = ""
    #: The names of the nodes by rank, if the starter knows them. Only the owner has this list.
    names: tuple[str, ...] = ()
    #: Whether a new node stops the running attempt, so that the next attempt can use it at once.
    grow: bool = False
    #: Seconds for workers that registered for a notice to save, before a new node (`grow`) stops the attempt.
    save_s: float = 30.0
    #: Whether no worker runs on the owner's machine, so that all nodes are other machines.
    apart: bool = False
    #: Whether the platform replaces a node that the job avoids.
    replaced: bool = False

    @property
    def many(self) -> bool:
        """Whether the job may run on machines other than the owner's."""
        return self.most > 1 or self.spares > 0 or self.apart


class PlatformJob(Noun, frozen=True, kw_only=True):
    """The platform's names for a job that it has started. They stay the same when the platform starts the job again."""

    #: The name of the platform: `slurm`.
    platform: str
    #: The job's id as users type it: `42`, or `42_7` for a task of an array.
    id: str
    #: The job's id for commands of the platform, if it differs from `id`, as for a task of an array; else empty.
    number: str = ""
    #: The name of the cluster, if the platform has several; else empty.
    cluster: str = ""


class Requeuing(Noun, frozen=True, kw_only=True):
    """Whether, and when, the platform may start the job again after an early end of this run."""

    possible: bool = False
    #: Whether the platform may start the job again after its time limit has ended the run.
    at_time_limit: bool = False
    #: The platform's setting that forbids another start (`Requeue=0`); empty: another start is allowed.
    why_not: str = ""


class JobSpec(Noun, frozen=True, kw_only=True):
    """The specification of a job as the user submitted it."""

    name: str
    roles: tuple[Role, ...]
    kind: JobKind = JobKind.TRAINING
    restarts: RestartPolicy = RestartPolicy()
    timers: Timers = Timers()
    #: The pre-checks to run, in order, with their parameters; None: the default checks; (): no checks.
    checks: tuple[CheckChoice, ...] | None = None
    hang_timeout_s: float | None = None
    #: A job without a hang time-out warns once per attempt after this many seconds without a sign of life; 0: never.
    hang_warning_s: float = 600.0
    time_limit_s: float | None = None
    on_subhealth: str = "ignore"
    nodes: NodePlan = NodePlan()
    #: The platform's names for the job; None: no platform has started it.
    platform: PlatformJob | None = None
    requeue: Requeuing = Requeuing()
    #: Whether holdfast writes the cause of an attempt's end into the job's comment on the platform.
    job_comment: bool = True
    #: The user who submitted the job; empty: the user who runs the owner.
    user: str = ""
    #: The directory in which the job was started; empty in records of earlier releases.
    directory: str = ""
    #: The image of the workers' container, on platforms that run containers.
    image: str = ""
    #: The platform's queue or partition for the job.
    virtual_cluster: str = ""
    #: The job file's parameters by name, which commands can use.
    parameters: dict[str, str] = {}
    runtime: RuntimePlan = RuntimePlan()
    #: Whether workers are bound to the CPUs and devices in their `Resources`; False: the request is only recorded.
    binds: bool = True
    #: Whether workers get OpenPAI's environment variables with their peers' addresses; None: only if the job uses such
    #: variables.
    pai: bool | None = None
    #: Whether each worker starts in its own directory, as in a container, even if workers share a machine.
    task_directories: bool = False

    @property
    def world_size(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def tells_peers(self) -> bool:
        """Whether workers get OpenPAI's environment variables, with their peers' hosts and reserved ports.

        If `pai` is None, workers get them if a role has ports, if sshd is on, or if a command or variable of the job
        contains the name of one.
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
    """A machine that can run workers of the job, with its resources."""

    name: str
    #: The number of workers that the node can run.
    slots: int
    devices: tuple[str, ...] = ()
    #: The address by which peers reach the node; empty: the node has no peers.
    address: str = ""
    #: The user's `--node-rank` for this node; None: none.
    node_rank: int | None = None
    cores: int = 0
    memory_bytes: int = 0
    #: Whether this node is the owner's own machine.
    here: bool = False
    #: The node's place in the platform's topology (switches, zones, racks), from the widest unit to the narrowest.
    labels: tuple[str, ...] = ()
    #: The usable cores of each memory domain (NUMA node), as `0+64,1+65`. Cores to which other processes are bound come
    #: last. Empty: no worker is bound to a core.
    cpus: tuple[str, ...] = ()
    #: Device → the index of the memory domain (NUMA node) to which the device is attached.
    near: dict[str, int] = {}


class GangShape(Noun, frozen=True, kw_only=True):
    """The facts about the whole gang for the workers of a node. Their size does not grow with the gang."""

    world_size: int = 1
    nodes: int = 1
    #: The index of this node among the gang's nodes, from 0.
    index: int = 0
    #: The number of workers of this node.
    local: int = 1
    #: The number of workers of each role in the whole gang. A role that is not in it has `Role.count` workers.
    roles: dict[str, int] = {}


class Placement(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's place in an attempt: its rank, node, devices and CPUs.

    A PREPARE has one for each worker of a node, so fields with default values are not sent.
    """

    rank: int
    role: str
    role_rank: int
    node: str
    local_rank: int
    device: str = ""
    #: The devices that the worker shares with other workers, if none is reserved for it. A fault of one of them counts
    #: as a fault of the worker's device.
    shares: tuple[str, ...] = ()
    #: The devices that the worker may see; empty: all devices of its node, unless `bound` is set.
    visible: tuple[str, ...] = ()
    #: Whether the devices in `visible` are reserved for this worker, so that it sees no others. // The worker's device
    #: numbers and its LOCAL_RANK then start at 0.
    bound: bool = False
    #: The CPUs to which the worker is bound, in the kernel's form `0-3,8`; empty: the worker is not bound.
    cpus: str = ""


def shapes(placements: Sequence[Placement]) -> dict[str, GangShape]:
    """Return node → the facts about the gang for that node, in the order of the nodes' first ranks. `placements`: the
    placement of each rank.
    """
    local = Counter(placement.node for placement in placements)
    roles = dict(Counter(placement.role for placement in placements))
    return {
        node: GangShape(world_size=len(placements), nodes=len(local), index=index, local=count, roles=roles)
        for index, (node, count) in enumerate(local.items())
    }


def asked_devices(spec: JobSpec, role: Role) -> int | None:
    """Return the number of devices reserved for each worker of a role; None: the role does not set it."""
    return role.resources.devices if spec.binds else None


def asked_cpus(spec: JobSpec, role: Role) -> int:
    """Return the number of whole CPUs reserved for each worker of a role; 0: the worker is not bound.

    A fraction of a CPU (0.5) cannot be reserved.
    """
    cpus = role.resources.cpus
    return math.ceil(cpus) if spec.binds and cpus is not None and cpus >= 1 else 0


def binds(spec: JobSpec) -> bool:
    """Return whether any role reserves devices or CPUs for each of its workers."""
    return any(asked_devices(spec, role) is not None or asked_cpus(spec, role) for role in spec.roles)


class JobSetting(Noun, frozen=True, kw_only=True):
    """A setting with a value other than the default on the owner's machine. The owner sends only these to the nodes."""

    name: str
    value: str | bool | int | float | tuple[str, ...] | None
    #: The precedence of its source, as in `holdfast.settings.resolved_settings.SettingSource`.
    source: int
    #: The name of its source: `--log-size`, `/etc/holdfast/config.yaml`.
    origin: str
