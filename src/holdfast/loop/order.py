"""What a run needs besides the job itself: an order, complete before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.loop.devices.options import FaultOptions
from holdfast.model.jobs import JobSpec
from holdfast.observe.std import StdChoice

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.loop.cleaning import Limit
    from holdfast.loop.prechecks.plan import CheckPlan
    from holdfast.model.checks import Site
    from holdfast.model.decisions import JobReport
    from holdfast.model.notices import NoticePlan
    from holdfast.observe.logfile import Rotation


class Render(Protocol):
    """Puts a report into words for a person: ends with a line end.

    `logs`: where the job's `attempt-<n>` directories lie. `verbose`: with all evidence, and each attempt's decision.
    """

    def __call__(self, report: JobReport, *, logs: Path, width: int, colour: bool, verbose: bool) -> str: ...


class OverNodes(Protocol):
    """Carries this node's part of a job over many nodes."""

    def __call__(self, launch: Launch, guard_fd: int | None) -> int:
        """The job's final code. `guard_fd`: what tells of the death of this process's guard, where it has one."""
        ...


class Warmth(msgspec.Struct, frozen=True):
    """How workers are forked from a process that has done their imports."""

    preload: tuple[str, ...]
    standby: bool
    import_s: float


class Interpreter(msgspec.Struct, frozen=True):
    """A Python for the workers."""

    path: str
    own: bool = True
    """It is the one that runs holdfast."""
    note: str = ""
    """What is to be said of the choice."""
    cold: str = ""
    """Why workers under it cannot start warm; empty: they can."""


class Starter(Protocol):
    """Gets agents running on other nodes."""

    news_fd: int
    """Where the owner reads what happens to them (`holdfast.cluster.starting`); negative: it is not told."""

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Start them, and end when the last one has left; the exit status.

        It runs in a process of its own, a child of the guard on the owner's node, so that an owner that dies takes
        nothing with it. The agents dial `address` and `port`. `guard_fd` is readable when the guard gets a signal
        (`holdfast.act.guard.WORD` bytes each), and at its end when the guard dies or the job is over: what was started
        ends then.
        """
        ...


class NodesOrder(msgspec.Struct, frozen=True):
    """How this machine's run takes part in a job over many nodes. `spec.nodes` says how many nodes there are."""

    host: str
    """Of the endpoint, as it was typed, without brackets: where the owner is dialled."""
    port: int
    """Of the endpoint. 0: any free one (only where a starter tells the others)."""
    key: bytes
    """The job's 32 bytes."""
    key_from: str
    """Where the key was found, in words (its path), for sentences: the key itself is never shown."""
    job: str
    """What two runs must have in common to be one job: `--rdzv-id`, else the job's name and its script."""
    slots: int
    """`--nproc-per-node` of this node; the `count` of a role with `per_node` is the same."""
    hosts: bool = False
    """This machine hosts the owner (`holdfast.cluster.static.part`); where the port is held already, it is dialled."""
    hosts_why: str = ""
    """A clause: `its --node-rank is 0`."""
    elsewhere: bool = False
    """It hosts the owner, though the endpoint is no address of this machine."""
    is_host: bool | None = None
    """As typed (`--rdzv-conf is_host=1`, or `--master-addr` and a node rank); None: `hosts` follows from the rest."""
    node_rank: int | None = None
    local_addr: str = ""
    """Where peers reach this node, as its user says; empty: the address that a peer has reached."""
    port_range: tuple[int, int] | None = None
    """First and last: MASTER_PORT and the ports of pairwise checks lie in it. None: any port."""
    owner_wait_s: float = 60.0
    """How long an agent whose lease has ended dials on."""
    starter: Starter | None = None
    """None: the command was typed on every node."""
    takes_part: bool = True
    """This machine has workers; otherwise it hosts the owner only."""
    name: str = ""
    """What this node is called, where a list of hosts names it; empty: what the machine calls itself."""
    labels: tuple[str, ...] = ()
    """What the platform says of this node's neighbourhood, the outermost first: ranks go by it."""
    starter_fd: int | None = None
    """Of an agent that a starter has started: readable when the connection to the starter has ended. Once the lease is
    over too, the agent dials no further."""
    agent: str = ""
    """What the agent is known by, where a starter lets one live on a node at a time: the next one there has its seat.
    Empty: a random number."""
    quiet: bool = False
    """What is printed here comes out where the owner's words do: the report is shown there once, and not here."""

    def __repr__(self) -> str:
        return f"NodesOrder({self.host}:{self.port}, key from {self.key_from})"


class Launch(msgspec.Struct, frozen=True):
    """What a run needs besides the job itself."""

    spec: JobSpec
    home: Path
    cwd: Path
    render: Render
    """How the report looks on the terminal."""
    environment: Mapping[str, str]
    checks: CheckPlan | None
    """None: DISABLED."""
    redirects: StdChoice
    tee: StdChoice
    shown_ranks: frozenset[int] | None = None
    """Local ranks whose output goes to the terminal; None: all."""
    log_dir: Path | None = None
    report_path: Path | None = None
    metrics_path: Path | None = None
    """Where metrics go for Prometheus; None: nowhere."""
    notices: NoticePlan | None = None
    """What tells others of the job while it runs and at its end; None: only the terminal has it."""
    termination_log: Path | None = None
    """What a container's engine reads when the container has ended; None: none is written."""
    container_status: Path | None = None
    """Where an engine leaves its word on the job's container; None: there is none."""
    users_status: bool = False
    """The run ends with the user's own exit status, where the job failed by one."""
    outer: str | None = None
    """The process, or the FIFO, whose end ends the job; None: there is none."""
    as_json: bool = False
    verbose: bool = False
    """The report on the terminal is the long one."""
    as_events: bool = False
    """Events come on stdout, a line each; the last one has the report."""
    run_id: str = ""
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    virtual_local_rank: bool = False
    """LOCAL_RANK is 0 in every worker, which sees one device of its own."""
    python: str = sys.executable
    """What runs the workers, where their command does not say it."""
    no_warmth: str = ""
    """Why workers cannot start warm under it; empty: they can."""
    stdin: int | None = 0
    """The rank that reads holdfast's stdin; None: no rank does."""
    faults: FaultOptions = FaultOptions()
    """How devices are watched."""
    notes: tuple[str, ...] = ()
    """Lines to say first: options that have no meaning here."""
    warm: Warmth | None = None
    """None: every worker starts cold."""
    rotation: Rotation | None = None
    """Of the workers' logs; None: they grow without a limit."""
    kept_attempts: int | None = None
    """The logs of so many attempts are kept on each node, the present one among them; None: of all."""
    disk_limit: Limit | None = None
    """The disk cleaner's; None: off."""
    catalogue: Catalogue | None = None
    """The rows exits are explained by; None: the built-in ones."""
    nodes: NodesOrder | None = None
    """None: the job stays on this machine."""

    @property
    def prints_json(self) -> bool:
        """Our stdout holds JSON and nothing else."""
        return self.as_json or self.as_events

    def names(self) -> dict[int, str]:
        """Rank → `ROLE-RANK`, the name of its directory; in the order of placement."""
        roles = [role.name for role in self.spec.roles for _ in range(role.count)]
        return {rank: f"{name}-{rank}" for rank, name in enumerate(roles)}

    def site(self, node: str, home: Path) -> Site:
        """Where the checks of this run look."""
        from holdfast.model.checks import Site

        return Site(node=node, cwd=str(self.cwd), home=str(home), workers=self.spec.world_size, port=self.master_port)
