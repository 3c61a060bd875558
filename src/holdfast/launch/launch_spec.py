"""Everything that a run needs besides the job itself: an order, complete before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.launch.fault_options import FaultOptions
from holdfast.launch.stream_choice import StdChoice
from holdfast.model.job_spec import JobSpec
from holdfast.settings.resolved_settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.launch.check_plan import CheckPlan
    from holdfast.launch.disk_limit import Limit
    from holdfast.model.check_results import Site
    from holdfast.model.decisions import JobReport
    from holdfast.model.notice_messages import NoticePlan
    from holdfast.observe.log_file import Rotation


class Render(Protocol):
    """Writes a report as text for the user; it ends with a line end.

    `logs`: where the job's `attempt-<n>` directories are. `verbose`: with all evidence, and each attempt's decision.
    """

    def __call__(self, report: JobReport, *, logs: Path, width: int, colour: bool, verbose: bool) -> str: ...


class MultiNodeRunner(Protocol):
    """Runs this node's part of a job over many nodes."""

    def __call__(self, launch: LaunchSpec, guard_fd: int | None) -> int:
        """Returns the job's final code. `guard_fd`: readable when this process's guard dies, where it has one."""
        ...


class WarmStartOptions(msgspec.Struct, frozen=True):
    """How workers are forked from a process that has done their imports already."""

    preload: tuple[str, ...]
    standby: bool
    import_s: float


class Interpreter(msgspec.Struct, frozen=True):
    """A Python for the workers."""

    path: str
    #: It is the Python that runs holdfast.
    own: bool = True
    #: The note about the choice.
    note: str = ""
    #: Why its workers cannot start warm; empty: they can.
    cold: str = ""


class Starter(Protocol):
    """Starts agents on other nodes."""

    #: Where the owner reads news of the agents (`holdfast.wire.starter_reports`); negative: it gets none.
    news_fd: int

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Start them, and return the exit status when the last one has left.

        The starter runs in a process of its own, a child of the guard on the owner's node, so that it survives the
        owner. The agents connect to `address` and `port`. `guard_fd` is readable when the guard gets a signal
        (`holdfast.act.guard.WORD` bytes each), and at its end when the guard dies or the job is over: then the starter
        ends the agents.
        """
        ...


class NodesOrder(msgspec.Struct, frozen=True):
    """This machine's part in a job over many nodes. `spec.nodes` says how many nodes there are."""

    #: The endpoint's host as the user typed it, without brackets: where agents connect to the owner.
    host: str
    #: The endpoint's port. 0: any free one (only where a starter gives the number to the others).
    port: int
    #: The job's 32 bytes.
    key: bytes
    #: The place where the key was found (its path), for messages: the key itself is never shown.
    key_from: str
    #: What two runs must have in common to be one job: `--rdzv-id`, else the job's name and its script.
    job: str
    #: `--nproc-per-node` of this node; the `count` of a role with `per_node` is the same.
    slots: int
    #: This machine hosts the owner (`holdfast.launch.owner_placement.part`); where the port is held already, it dials
    #: it.
    hosts: bool = False
    #: The reason, as a clause: `its --node-rank is 0`.
    hosts_why: str = ""
    #: It hosts the owner, though the endpoint is no address of this machine.
    elsewhere: bool = False
    #: As typed (`--rdzv-conf is_host=1`, or `--master-addr` and a node rank); None: `hosts` follows from the rest.
    is_host: bool | None = None
    node_rank: int | None = None
    #: The address at which peers reach this node, as the user typed it; empty: the address that a peer has reached.
    local_addr: str = ""
    #: First and last port: MASTER_PORT and the ports of pairwise checks are in this range. None: any port.
    port_range: tuple[int, int] | None = None
    #: How long an agent whose lease has ended tries to reach the owner again.
    owner_wait_s: float = 60.0
    #: The same where nobody has set `owner-wait`.
    usual_owner_wait_s: float = 60.0
    #: None: the user typed the command on every node.
    starter: Starter | None = None
    #: This machine has workers; otherwise it only hosts the owner.
    takes_part: bool = True
    #: The name of this node, where a list of hosts has it; empty: the machine's own name.
    name: str = ""
    #: The node's neighbourhood as the platform reports it, the outermost first: ranks follow it.
    labels: tuple[str, ...] = ()
    #: For an agent that a starter has started: readable when the connection to the starter has ended. Once the lease is
    #: over too, the agent stops dialling.
    starter_fd: int | None = None
    #: The agent's name, where a starter allows one agent at a time on a node: the next one there takes its seat. Empty:
    #: a random number.
    agent: str = ""
    #: The owner's terminal shows what is printed here: so the report is printed there, once, and not here.
    quiet: bool = False

    def __repr__(self) -> str:
        return f"NodesOrder({self.host}:{self.port}, key from {self.key_from})"


class LaunchSpec(msgspec.Struct, frozen=True):
    """Everything that a run needs besides the job itself."""

    spec: JobSpec
    home: Path
    cwd: Path
    #: How the report looks on the terminal.
    render: Render
    environment: Mapping[str, str]
    redirects: StdChoice
    tee: StdChoice
    #: Local ranks whose output goes to the terminal; None: all.
    shown_ranks: frozenset[int] | None = None
    #: Resolved on this node; those of scope `job` are the owner's once it has let this node in. The fields below have
    #: what a setting becomes where it has to be read, loaded or checked before anything starts.
    settings: Settings = DEFAULTS
    #: None: DISABLED.
    checks: CheckPlan | None = None
    log_dir: Path | None = None
    report_path: Path | None = None
    #: The file for Prometheus metrics; None: none is written.
    metrics_path: Path | None = None
    #: Who is notified about the job while it runs and at its end; None: only the terminal shows it.
    notices: NoticePlan | None = None
    #: The file that a container's engine reads when the container has ended; None: none is written.
    termination_log: Path | None = None
    #: The file in which an engine reports about the job's container; None: there is none.
    container_status: Path | None = None
    #: The run exits with the user's own exit status, where the job failed with one.
    users_status: bool = False
    #: A process or a FIFO: when it ends, the job ends; None: there is none.
    outer: str | None = None
    as_json: bool = False
    #: The terminal shows the long report.
    verbose: bool = False
    #: Events are printed on stdout, one per line; the last one has the report.
    as_events: bool = False
    run_id: str = ""
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    #: LOCAL_RANK is 0 in every worker, which sees one device of its own.
    virtual_local_rank: bool = False
    #: The Python that runs the workers, where their command does not name one.
    python: str = sys.executable
    #: Why workers cannot start warm under it; empty: they can.
    no_warmth: str = ""
    #: Finds the Python of a user's container, which only a warm start needs to know; None: `python` is the one.
    image_python: Callable[[], Interpreter] | None = None
    #: The rank that reads holdfast's stdin; None: no rank does.
    stdin: int | None = 0
    #: How devices are watched.
    faults: FaultOptions = FaultOptions()
    #: Lines to print first: options that have no meaning here.
    notes: tuple[str, ...] = ()
    #: None: every worker starts cold.
    warm: WarmStartOptions | None = None
    #: `warm` and `preload` of the job file.
    warm_in_file: bool | None = None
    preload_in_file: tuple[str, ...] = ()
    #: The rotation of the workers' logs; None: they grow without a limit.
    rotation: Rotation | None = None
    #: How many attempts' logs each node keeps, with the present one; None: all.
    kept_attempts: int | None = None
    #: The limit of the disk cleaner; None: off.
    disk_limit: Limit | None = None
    #: The rows that explain exits; None: the built-in ones.
    catalogue: Catalogue | None = None
    #: None: the job stays on this machine.
    nodes: NodesOrder | None = None

    @property
    def prints_json(self) -> bool:
        """Our stdout has JSON and nothing else."""
        return self.as_json or self.as_events

    def names(self) -> dict[int, str]:
        """Rank → `ROLE-RANK`, the name of its directory; in the order of placement."""
        roles = [role.name for role in self.spec.roles for _ in range(role.count)]
        return {rank: f"{name}-{rank}" for rank, name in enumerate(roles)}

    def site(self, node: str, home: Path) -> Site:
        """Where the checks of this run look."""
        from holdfast.model.check_results import Site

        return Site(node=node, cwd=str(self.cwd), home=str(home), workers=self.spec.world_size, port=self.master_port)
