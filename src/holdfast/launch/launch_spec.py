"""The launch spec: everything that a run needs besides the job itself. It is complete before any process starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.launch.worker_output_options import StdChoice
from holdfast.model.check_results import Site
from holdfast.model.job_spec import JobSpec
from holdfast.settings.resolved_settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.launch.check_plan import CheckPlan
    from holdfast.model.decisions import JobReport
    from holdfast.model.notice_messages import NoticePlan
    from holdfast.observe.log_file import Rotation
    from holdfast.settings.value_kinds import DiskLimit

KERNEL_LOG = "/dev/kmsg"
#: The directory from which a Python without holdfast imports the functions that holdfast provides for workers.
ALONGSIDE = Path(__file__).parent.parent / "act" / "alongside"


class Render(Protocol):
    """Formats a report as text for the user; the text ends with a newline.

    `logs`: the directory that contains `attempt-<n>`. `width`: columns. `verbose`: include all evidence, and each
    attempt's decision. `home`: the state directory that the printed commands must name; empty if they find the job
    without it.
    """

    def __call__(
        self, report: JobReport, *, logs: Path, width: int, colour: bool, verbose: bool, home: str = ""
    ) -> str: ...


class MultiNodeRunner(Protocol):
    """Runs this node's part of a multi-node job."""

    def __call__(self, launch: LaunchSpec) -> int:
        """Run this node's part, and return the job's exit code. This process becomes the guard of its node."""
        ...


class FaultOptions(msgspec.Struct, frozen=True):
    """The options for device faults: files that replace the built-in codes and rules, the sources of faults, and the
    command that resets a device."""

    codes: str | None = None
    rules: str | None = None
    kernel_log: str = KERNEL_LOG
    #: The socket that receives reported faults; None: `faults.sock` in the job's directory.
    socket: Path | None = None
    #: The file from which faults are read; None: `faults.jsonl` in the job's directory.
    file: Path | None = None
    ascend_events: Path | None = None
    reset_command: str | None = None
    #: The number of neighbouring devices that can only be reset together.
    reset_group: int = 1


class WarmStartOptions(msgspec.Struct, frozen=True):
    """Options for warm starts, in which workers are forked from a process that has done their imports."""

    preload: tuple[str, ...]
    standby: bool
    import_s: float


class Interpreter(msgspec.Struct, frozen=True):
    """The workers' Python interpreter."""

    path: str
    #: True if this is the Python that runs holdfast.
    own: bool = True
    #: A note for the user about the choice of this interpreter, or "".
    note: str = ""
    #: Why workers with this interpreter cannot start warm, or "" if they can.
    cold: str = ""


def with_our_part(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with `ALONGSIDE` at the end of PYTHONPATH, so that another Python finds the functions that
    holdfast provides for workers."""
    path = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{path}{os.pathsep}{ALONGSIDE}" if path else str(ALONGSIDE)}


class Starter(Protocol):
    """Starts agents on other nodes."""

    #: The fd from which the owner reads reports about the agents (`holdfast.wire.starter_reports`); negative if there
    #: is none.
    news_fd: int

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Start the agents. Return the exit status when the last agent has exited.

        The starter runs in its own process, a child of the guard on the owner's node, so that it survives the owner.
        The agents connect to `address` and `port`. From `guard_fd` the starter reads the guard's signals
        (`holdfast.act.guard.WORD` bytes each). A block of zeros (`guarded_children.OVER`) means that the job is over:
        let the agents finish, then return. The end of file means that the guard has died: end the agents at once.
        """
        ...


class NodesOrder(msgspec.Struct, frozen=True):
    """This machine's part in a multi-node job. The number of nodes is in `spec.nodes`."""

    #: The host of the endpoint at which agents connect to the owner, as the user typed it, without brackets.
    host: str
    #: The endpoint's port. 0 means any free port. Then a starter must pass the port's number to the agents.
    port: int
    #: The job's secret key, 32 bytes.
    key: bytes
    #: Where the key came from, for messages: a path or a clause. The key itself is never shown.
    key_from: str
    #: The job's identity, equal for all nodes of a job: `--rdzv-id`, else the job's name and its script.
    job: str
    #: The number of workers on this node (`--nproc-per-node`). A role with `per_node` has the same `count`.
    slots: int
    #: True if this machine hosts the owner (`holdfast.launch.owner_placement.part`). If the port is in use already,
    #: this machine connects to the owner at that port.
    hosts: bool = False
    #: A clause with the reason for `hosts`: `its --node-rank is 0`.
    hosts_why: str = ""
    #: True if this machine hosts the owner although the endpoint is not one of its addresses.
    elsewhere: bool = False
    #: Whether the user has chosen this machine as the owner's host (`--rdzv-conf is_host=1`, or `--master-addr` with a
    #: node rank), or None.
    is_host: bool | None = None
    node_rank: int | None = None
    #: The address at which peers reach this node, as the user typed it. Empty: the address at which a peer has reached
    #: this node.
    local_addr: str = ""
    #: The first and last port for MASTER_PORT and pairwise checks; None allows any port.
    port_range: tuple[int, int] | None = None
    #: How long an agent whose lease has expired tries to reach the owner again, in seconds.
    owner_wait_s: float = 60.0
    #: The value of `owner_wait_s` if `owner-wait` is not set, in seconds.
    usual_owner_wait_s: float = 60.0
    #: Starts the agents on the other nodes. None if the user types the command on every node.
    starter: Starter | None = None
    #: True if this machine runs workers. Otherwise it only hosts the owner.
    takes_part: bool = True
    #: This node's name in the list of hosts. Empty: the machine's own name.
    name: str = ""
    #: The node's position in the network as the platform reports it, the outermost level first. Ranks are ordered by
    #: this position.
    labels: tuple[str, ...] = ()
    #: An fd that becomes readable when the connection to the agent's starter has ended. If the agent's lease has
    #: expired too, the agent stops reconnecting.
    starter_fd: int | None = None
    #: The agent's id, if a starter allows only one agent at a time on a node: the next agent on that node replaces the
    #: present one. Empty: a random id.
    agent: str = ""
    #: Do not print the report on this node: its output appears on the owner's terminal, where the owner prints the
    #: report.
    quiet: bool = False

    def __repr__(self) -> str:
        return f"NodesOrder({self.host}:{self.port}, key from {self.key_from})"


class LaunchSpec(msgspec.Struct, frozen=True):
    """Everything that a run needs besides the job itself."""

    spec: JobSpec
    home: Path
    cwd: Path
    #: Formats the report for the terminal.
    render: Render
    environment: Mapping[str, str]
    redirects: StdChoice
    tee: StdChoice
    #: The local ranks whose output goes to the terminal; None for all.
    shown_ranks: frozenset[int] | None = None
    #: The settings resolved on this node. Those of scope `job` are replaced by the owner's once this node has joined.
    #: Some fields below hold a setting's value after it was read, loaded or checked before the start.
    settings: Settings = DEFAULTS
    #: The planned checks; None if checks are disabled.
    checks: CheckPlan | None = None
    log_dir: Path | None = None
    report_path: Path | None = None
    #: The file for Prometheus metrics; None if none is written.
    metrics_path: Path | None = None
    #: The receivers of notices while the job runs and at its end; None if there are none.
    notices: NoticePlan | None = None
    #: The termination message file, which a container engine reads after the container's end; None if none is written.
    termination_log: Path | None = None
    #: The file in which a container engine reports the status of the job's container; None if there is none.
    container_status: Path | None = None
    #: True if a job that fails because of the user's program makes holdfast exit with the program's status.
    users_status: bool = False
    #: A pid or the path of a FIFO. The job ends when this process, or the FIFO's writer, has ended. None if there is
    #: none.
    outer: str | None = None
    as_json: bool = False
    #: Print the long report on the terminal.
    verbose: bool = False
    #: Print events on stdout, one per line. The last one contains the report.
    as_events: bool = False
    run_id: str = ""
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    #: Every worker sees only its own device, and its LOCAL_RANK is 0.
    virtual_local_rank: bool = False
    #: The workers' Python, if their command does not name one.
    python: str = sys.executable
    #: Why workers cannot start warm with this Python, or "" if they can.
    no_warmth: str = ""
    #: Finds the Python in a user's container, which only a warm start needs. None: the Python is `python`.
    image_python: Callable[[], Interpreter] | None = None
    #: The rank that reads holdfast's stdin; None for no rank.
    stdin: int | None = 0
    #: The options for device faults.
    faults: FaultOptions = FaultOptions()
    #: The container command that runs a worker in its image; the image's address follows these arguments. (): no image
    #: runs.
    image_words: tuple[str, ...] = ()
    #: Messages to print at the start, about options that are ignored.
    notes: tuple[str, ...] = ()
    #: The options for warm starts; None if every worker starts cold.
    warm: WarmStartOptions | None = None
    #: The values of `warm` and `preload` in the job file.
    warm_in_file: bool | None = None
    preload_in_file: tuple[str, ...] = ()
    #: The rotation of the workers' logs; None if they grow without a limit.
    rotation: Rotation | None = None
    #: The number of attempts, including the present one, whose logs each node keeps; None for all.
    kept_attempts: int | None = None
    #: The disk limit at which a job is stopped (`--disk-limit`); None if there is none.
    disk_limit: DiskLimit | None = None
    #: The catalogue that explains exits; None for the built-in one.
    catalogue: Catalogue | None = None
    #: This machine's part in a multi-node job; None for a job on one machine.
    nodes: NodesOrder | None = None

    @property
    def prints_json(self) -> bool:
        """Return whether holdfast's stdout contains only JSON."""
        return self.as_json or self.as_events

    def names(self) -> dict[int, str]:
        """Return a map from rank to `ROLE-RANK`, the name of the worker's directory."""
        roles = [role.name for role in self.spec.roles for _ in range(role.count)]
        return {rank: f"{name}-{rank}" for rank, name in enumerate(roles)}

    def site(self, node: str, home: Path) -> Site:
        """Return the names, directories and port that this run's checks need."""
        return Site(node=node, cwd=str(self.cwd), home=str(home), workers=self.spec.world_size, port=self.master_port)
