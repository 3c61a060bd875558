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
VISIBLE = {"CUDA_VISIBLE_DEVICES": "gpu", "ASCEND_RT_VISIBLE_DEVICES": "npu"}


#: Prefixes of environment variables of OpenPAI. If a job's commands or variables mention one, its workers get OpenPAI's
#: environment (see `tells_peers`).
_TOLD = ("PAI_", "HOLDFAST_PEERS", "HOLDFAST_OUTPUT", "HOLDFAST_TMP", "HOLDFAST_CONFIG")


class JobKind(enum.StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"


class Completion(Noun, frozen=True, kw_only=True):
    """The completion policy of a role: how many ended workers of the role end the job.

    If both fields are None, the job ends once all workers have ended.

    `min_failed`: this many failed workers fail the attempt. `min_succeeded`: this many succeeded workers complete the
    job, and holdfast stops the rest.
    """

    min_failed: int | None = 1
    min_succeeded: int | None = None


class Resources(Noun, frozen=True, kw_only=True):
    """The resources that each worker of a role gets."""

    memory_bytes: int | None = None
    #: The number of CPUs that each worker needs, rounded up to whole CPUs and reserved for it. Below 1, and if None,
    #: none is reserved.
    cpus: float | None = None
    #: The number of accelerators reserved for each worker, which sees no others. 0: it sees none. None: it sees all.
    devices: int | None = None


class Role(Noun, frozen=True, kw_only=True):
    """A role: workers that run the same command."""

    name: str
    #: The number of the role's workers in the whole gang. With `per_node`: the number on each node, unless the node's
    #: `slots` set it.
    count: int
    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: Resources = Resources()
    completion: Completion = Completion()
    #: Whether each node runs as many workers of this role as it has slots. If so, the number of nodes decides the size
    #: of the gang.
    per_node: bool = False
    #: The image of the workers' container, on platforms that run containers; empty: the job's image.
    image: str = ""
    #: The text of a script for `command`. Each worker gets it as a file, whose path is the last argument of the
    #: command.
    script: str = ""
    #: Label → the number of ports with that label that each worker needs. Nodes reserve them before the workers start.
    ports: dict[str, int] = {}


class RestartPolicy(Noun, frozen=True, kw_only=True):
    """The limits on restarts, and the pauses before them.

    Failures of the workload count against the user's budget, all others against the platform's larger budget.
    """

    #: The user's budget: the number of restarts after failures of the workload or of unknown cause.
    max_restarts: int = 3
    #: The platform's budget: the number of restarts after failures of hardware, platform and network, and after
    #: preemption.
    platform_max_restarts: int = 20
    #: Maximum number of failures in a row, of any cause, without progress between them.
    max_in_a_row: int = 5
    window_restarts: int = 20
    #: The time in seconds within which at most `window_restarts` restarts of any kind are made.
    window_s: float = 86_400.0
    backoff_s: float = 1.0
    backoff_cap_s: float = 300.0
    #: Seconds after which a running attempt counts as healthy. The pauses and the count of failures in a row then start
    #: anew.
    healthy_s: float = 600.0
    #: Maximum number of nodes or devices that one job may avoid, so that a faulty job cannot exclude a whole cluster.
    max_isolations: int = 2
    #: The job ends after this many equal failures in a row without any sign of progress; 0: never.
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
    #: Seconds after SIGKILL until a worker that has not been reaped (in D state) counts as lost.
    kill_s: float = 30.0
    #: Seconds to wait for the failures of other workers after an exit that only blames a peer.
    peer_wait_s: float = 0.5
    #: With several nodes: seconds after the last exit during which the owner still accepts evidence of the attempt.
    settle_s: float = 1.5
    beat_s: float = 5.0
    lease_s: float = 30.0
    drift_s: float = 1.0
    #: With several nodes: seconds that the owner waits for a journal that cannot be written. After that it ends the
    #: job.
    owner_wait_s: float = 60.0
    #: Seconds after which the owner repeats a command that some node has not obeyed, until the phase ends.
    resend_s: float = 1.0


class NodePlan(Noun, frozen=True, kw_only=True):
    """The number of nodes of a gang, and how long to wait for them. A job on one node does not wait."""

    #: The minimum number of nodes to begin or continue the job.
    least: int = 1
    #: The maximum number of nodes of an attempt. Further nodes become spares.
    most: int = 1
    #: The number of spare nodes that the owner waits for during `last_call_s`, and that it keeps ready.
    spares: int = 0
    #: Once `least` nodes have joined, the first start waits until no other node has joined for this many seconds.
    last_call_s: float = 30.0
    #: Seconds within which `least` nodes must join; otherwise the start fails.
    join_s: float = 600.0
    #: Seconds that the owner waits for a new node if fewer than `least` are left.
    replace_s: float = 30.0
    #: Seconds that the owner waits for a new node if fewer than `most` are left, but at least `least`. The wait ends as
    #: soon as the platform has no room for another node. 0: the owner does not wait.
    refill_s: float = 0.0
    #: The owner's address, to which nodes connect, as the user typed it: HOST:PORT; empty: not known.
    endpoint: str = ""
    #: The names of the nodes by rank, if the job's starter knows them. Only the owner has this list.
    names: tuple[str, ...] = ()
    #: Whether a new node stops the running attempt, so that the next attempt can use that node at once.
    grow: bool = False
    #: Seconds that workers which asked for a notice may take to save before a new node (`grow`) stops the attempt.
    save_s: float = 30.0
    #: Whether no worker runs on the owner's machine, so that every node is another machine.
    apart: bool = False
    #: Whether the platform replaces a node that the job avoids.
    replaced: bool = False

    @property
    def many(self) -> bool:
        """Whether the job may run on machines other than the owner's."""
        return self.most > 1 or self.spares > 0 or self.apart


class PlatformJob(Noun, frozen=True, kw_only=True):
    """The names that the platform uses for a job which it started. They stay the same when the platform starts the job
    again.
    """

    #: The name of the platform: `slurm`.
    platform: str
    #: The job's id in the form that users type: `42`, or `42_7` for a task of an array.
    id: str
    #: The job's id for commands of the platform, if it differs from `id`, as for a task of an array; else empty.
    number: str = ""
    #: The name of the cluster, if the platform has several; else empty.
    cluster: str = ""


class Requeuing(Noun, frozen=True, kw_only=True):
    """Whether the platform may start the job again if this run ends early, and when not."""

    possible: bool = False
    #: Whether the platform may also start the job again after its time limit has ended the run.
    at_time_limit: bool = False
    #: The setting of the platform that forbids starting the job again (`Requeue=0`); empty: it may be started again.
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
    #: For jobs without a hang time-out: the job warns once per attempt after this many seconds without any sign of
    #: life; 0: never.
    hang_warning_s: float = 600.0
    time_limit_s: float | None = None
    on_subhealth: str = "ignore"
    nodes: NodePlan = NodePlan()
    #: The platform's names for the job; None: no platform has started it.
    platform: PlatformJob | None = None
    requeue: Requeuing = Requeuing()
    #: Whether holdfast writes the cause of an attempt's end into the comment of the job in the platform.
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
    #: Whether workers are bound to the CPUs and devices that their `Resources` request; False: the request is only
    #: recorded.
    binds: bool = True
    #: Whether workers get OpenPAI's environment variables with the addresses of their peers; None: only if the job uses
    #: such variables.
    pai: bool | None = None
    #: Whether each worker starts in its own directory even if workers share a machine, as containers would.
    task_directories: bool = False

    @property
    def world_size(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def tells_peers(self) -> bool:
        """Whether workers get OpenPAI's environment variables, which contain hosts and reserved ports of their peers.

        If `pai` is None, workers get them if a role has ports, if sshd is on, or if a command or variable of the job
        mentions one of these variables.
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
    #: The address at which peers reach the node; empty: the node has no peers.
    address: str = ""
    #: The `--node-rank` that the user chose for this node; None: none.
    node_rank: int | None = None
    cores: int = 0
    memory_bytes: int = 0
    #: Whether this node is the owner's own machine.
    here: bool = False
    #: The node's place in the platform's topology (switches, zones, racks), from the widest unit to the narrowest.
    labels: tuple[str, ...] = ()
    #: The usable cores of each memory domain (NUMA node), as `0+64,1+65`. Cores to which other processes are bound come
    #: last.
    #:
    #: Empty: no worker is bound to a core.
    cpus: tuple[str, ...] = ()
    #: Device → the index of the memory domain (NUMA node) to which the device is attached.
    near: dict[str, int] = {}


class GangShape(Noun, frozen=True, kw_only=True):
    """The facts about the whole gang that the workers of a node need. Their size does not grow with the gang."""

    world_size: int = 1
    nodes: int = 1
    #: The index of this node among the gang's nodes, from 0.
    index: int = 0
    #: The number of workers of this node.
    local: int = 1
    #: The number of workers of each role in the whole gang. A role that is not listed has `Role.count` workers.
    roles: dict[str, int] = {}


class Seat(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's place in an attempt: its rank, node, devices and CPUs.

    A PREPARE command has one for each worker of a node, so fields with default values are not sent.
    """

    rank: int
    role: str
    role_rank: int
    node: str
    local_rank: int
    device: str = ""
    #: The devices that the worker shares with other workers, if none is reserved for it. A fault of any of them counts
    #: as a fault of this worker's device.
    shares: tuple[str, ...] = ()
    #: The devices that the worker may see; empty: all devices of its node, unless `bound` is set.
    visible: tuple[str, ...] = ()
    #: Whether the devices in `visible` are reserved for this worker, so that it sees no other device (and none if
    #: `visible` is empty).
    #:
    #: The worker's device numbers and its LOCAL_RANK start at 0.
    bound: bool = False
    #: The CPUs to which the worker is bound, in the kernel's form `0-3,8`; empty: the worker is not bound.
    cpus: str = ""


def shapes(seats: Sequence[Seat]) -> dict[str, GangShape]:
    """Return node → the facts about the gang for this node. The nodes are in the order of their first ranks. `seats`:
    the placement of each rank.
    """
    local = Counter(seat.node for seat in seats)
    roles = dict(Counter(seat.role for seat in seats))
    return {
        node: GangShape(world_size=len(seats), nodes=len(local), index=index, local=count, roles=roles)
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
    """A setting whose value on the owner's machine is not the default. The owner sends only such settings
    to the nodes.
    """

    name: str
    value: str | bool | int | float | tuple[str, ...] | None
    #: The precedence of the source that set it, as in `holdfast.settings.resolved_settings.SettingSource`.
    source: int
    #: The name of the source that set it: `--log-size`, `/etc/holdfast/config.yaml`.
    origin: str
