"""Everything known about one attempt's end, put together before anything is judged.

`holdfast.explain.explain` takes an `AttemptEvidence` and gives the one `ExitReport`. A live run fills in what it saw
itself; `holdfast explain FILE…` has only logs, one `WorkerEvidence` a file, and perhaps an exit status.
"""

from __future__ import annotations

import enum

from holdfast.model.base import At, Noun
from holdfast.model.beside import SideFailure
from holdfast.model.exits import Evidence, WorkerExit
from holdfast.model.faults import ActiveFault
from holdfast.model.flight import Flight
from holdfast.model.phrases import Phrase
from holdfast.model.progress import Count
from holdfast.model.reading import WorkerReading

SAME_SIGNAL_S = 1.0
"""A worker that died of a signal, and holdfast that got the same within this time, had the same sender."""


class LogExcerpt(Noun, frozen=True, kw_only=True):
    """What is kept of one stream: its end, and cut-outs around what a scan of the earlier part hit."""

    source: str
    """`worker-1 stderr`, or a file's name."""
    text: str = ""
    """The end of the stream, decoded with replacement characters."""
    skipped_bytes: int = 0
    """How much of the stream lies before `text`."""
    cuttings: tuple[str, ...] = ()
    """Cut-outs (a hit with the lines around it) of the skipped part, in the order of the stream."""
    settled: int = 0
    """So many of the cuttings, from the first, stand before a sign that the program went on with its work."""
    first_line: int = 1
    """The number of `text`'s first line in the stream."""
    cutting_lines: tuple[int, ...] = ()
    """The number of each cutting's first line, where known."""
    written_at: float | None = None
    """When the stream was last written to, in seconds since the epoch: years that its stamps leave out come from it."""
    utc_offset_s: float = 0.0
    """Local time minus UTC at that moment: stamps without a zone are local time."""


class StopSource(enum.StrEnum):
    """What asks for a stop."""

    OPERATOR = "operator"
    SIGNAL = "signal"
    TIME_LIMIT = "time limit"
    TIMER = "timer"
    """A worker's own, of torch's file timers."""
    DISK_CLEANER = "disk cleaner"
    COMPONENT = "component"
    """A `<component>.pai.error` with ACTION KILL."""
    FAULT = "fault"
    HANG = "hang"
    SUPERVISOR = "supervisor"
    JOURNAL = "journal"
    GROWTH = "growth"
    """Nodes have joined that are to take part at once."""
    PLATFORM = "platform"
    """Slurm, Kubernetes: a preemption, a time limit, a cancelled job."""
    DAEMON = "daemon"
    """A daemon that the job requires is gone for good."""

    @classmethod
    def _missing_(cls, value: object) -> StopSource:
        """Journals of 0.1.0 have the component's file name here."""
        return cls.COMPONENT


class Deadline(enum.StrEnum):
    """A deadline of the gang's that an attempt did not meet."""

    NONE = ""
    PREPARE = "prepare"
    START = "start"
    JOIN = "join"
    """Too few nodes had joined."""


class StopRequest(Noun, frozen=True, kw_only=True):
    """A person or a component asked for the job or the attempt to stop, with a reason. The only way in to kill.

    `phrase` is the catalogue's phrase that the report gets: StoppedByOperator, TimeLimitReached, KilledByDiskCleaner …
    """

    reason: str
    solution: str = ""
    source: StopSource = StopSource.OPERATOR
    component: str = ""
    """The name of the file in which a component asked for it."""
    phrase: str = Phrase.STOPPED_BY_OPERATOR
    code: int | None = None
    """The code of a phrase that is the asking component's own; None: the phrase's row has it."""
    at: At | None = None
    who: str = ""
    """The user and process that asked, where known."""
    signal: int | None = None
    """The signal holdfast itself got, where that was the request."""
    grace_s: float | None = None
    """How long workers may take to leave; None: what the job says. A second Ctrl-C asks for 0."""
    everywhere: bool = False
    """The signal came to every process of the job: the workers need none from us."""
    hold_s: float = 0.0
    """How long it may still turn out that the signal came to every process of the job."""
    save_s: float = 0.0
    """How long workers that listen for it may take to save before anything is signalled."""
    within_s: float | None = None
    """What lives so long after the request is killed, whatever else it says: then the platform kills all. None: no
    such moment is known."""
    final: bool = True
    """True ends the job; False ends this attempt and leaves the rest to recovery."""
    requeue: bool = False
    """The job is to go on in another run of it, where the platform starts one: only this run ends."""


class MemoryKill(Noun, frozen=True, kw_only=True):
    """A kernel or cgroup memory kill, told apart from any other SIGKILL."""

    source: str
    """`cgroup v2 memory.events`, `cgroup v1 memory.oom_control`, `kernel log`"""
    text: str
    """The line or counter that says so."""
    node: str = ""
    """Whose kernel: pids of two nodes are often equal. Empty: the only node there is."""
    rank: int | None = None
    pid: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    rss_bytes: int | None = None
    """Resident memory of the killed process, where the kernel told it."""
    at: At | None = None
    scope: str = "host"
    """`worker` (a limit of the worker's own), `container` (the group holdfast runs in), or `host`."""
    limited_by: str = ""
    """Whose limit it was, where it was that of a group around holdfast: `Slurm's step 12.0 (sbatch --mem)`."""
    count: int = 0
    """So many kills the counter of a group that several ranks share has seen; 0: it is one process that is meant."""


class ThreadState(Noun, frozen=True, kw_only=True):
    """One thread of a rank when hang evidence was taken: kernel state, what it waits in, Python frames if had."""

    tid: int
    name: str = ""
    state: str = ""
    """The letter of /proc/PID/stat: R, S, D, T, t, Z."""
    waits_in: str = ""
    """The kernel's wait channel or the system call, where it tells."""
    frames: tuple[str, ...] = ()
    """Innermost first: `function (file:line)`; of machine code `function (libtorch_cpu.so)`, after a closer look."""
    pid: int = 0
    """The process it belongs to, where that is not the rank's own: a descendant. 0: not told."""
    cpu_s: float = 0.0
    """CPU seconds this thread alone has used so far."""
    file: str = ""
    """The descriptor that its system call is about, and what that is: `0 pipe:[8123]`, `7 /data/shard.bin`."""


class RankSnapshot(Noun, frozen=True, kw_only=True):
    """One rank's state at one look, taken before anything was stopped."""

    rank: int
    pid: int
    at: At
    threads: tuple[ThreadState, ...] = ()
    cpu_s: float = 0.0
    """CPU seconds the whole process tree of the rank has used so far."""
    io_bytes: int = 0
    """Bytes the process tree has read and written so far through files and pipes: a silent download moves this."""
    last_output_at: At | None = None
    last_step: int | None = None
    last_step_at: At | None = None
    stack_source: str = ""
    """`py-spy`, `faulthandler`, or why there is none: `the process is stopped and cannot dump`."""


class HangEvidence(Noun, frozen=True, kw_only=True):
    """Nothing has moved: two or more looks at every rank, and the rank that differs."""

    attempt: int
    silent_s: float
    looks: tuple[tuple[RankSnapshot, ...], ...] = ()
    """Outer: looks in time order. Inner: one snapshot a rank."""
    culprits: tuple[int, ...] = ()
    """The rank that differs from the rest; several where they cannot be told apart."""
    why: str = ""
    """One sentence: `rank 2 is stopped (state T) while ranks 0, 1, 3 wait in all_reduce`."""
    at: At | None = None


class CheckFailure(Noun, frozen=True, kw_only=True):
    """A pre-check that failed, as the report needs it."""

    check: str
    message: str
    solution: str = ""
    nodes: tuple[str, ...] = ()
    blame: str = "hardware"
    inconclusive: bool = False
    running: bool = False
    """It failed while the workers ran, not before they started."""
    devices: tuple[str, ...] = ()
    """The devices that it names, where it can tell them from the node."""
    elsewhere: bool = False
    """The check asks to leave nodes or devices out: another place may do."""
    phrase: str = ""
    """Where the failure is an exit of its own (a prerequisite that could not be had): its row; empty: CheckFailed."""


class Muster(Noun, frozen=True, kw_only=True):
    """The nodes of a gang that has waited too long for others."""

    least: int
    """With fewer nodes than this it cannot begin."""
    came: tuple[str, ...] = ()
    """`gpu-1 (10.1.2.7)`, in the order of their ranks."""
    unfit: tuple[str, ...] = ()
    """Of those, the ones that cannot be used."""
    missing_ranks: tuple[int, ...] = ()
    """Where nodes have a `--node-rank`: those that no node has."""
    missing: tuple[str, ...] = ()
    """Where a starter knows the nodes by name: those that never said hello."""
    waited_s: float = 0.0
    endpoint: str = ""
    """Where nodes dial the owner."""


class LeftBehind(Noun, frozen=True, kw_only=True):
    """A node that stopped answering."""

    node: str
    silent_s: float
    ranks: tuple[int, ...] = ()
    why: str = ""
    """What is known of its end; empty: it was silent, and no more is known."""
    words_s: tuple[float, ...] = ()
    """How long before the silence was noticed its last words came, the latest first."""
    back: bool = False
    """Its agent has started anew: the node is there, and none of the processes."""
    gone: bool = False
    """It has left and will not come back: it can be asked nothing."""
    memory_kill: MemoryKill | None = None
    """What its agent died of, and its workers with it."""


class Surroundings(Noun, frozen=True, kw_only=True):
    """What this machine knows of the thing that the workers missed or could not have."""

    python: str = ""
    """What ran the workers; empty where that is not known to be a Python."""
    by_command: bool = False
    """Their command says it by itself: no option of holdfast's changes it."""
    module: str = ""
    """The module that was not found."""
    found_in: tuple[str, ...] = ()
    """Pythons of other environments that have it: the active ones, and holdfast's own."""
    port: int | None = None
    """The port that was taken."""
    asked_port: int | None = None
    """The port that the user gave to holdfast for the job."""
    holder: str = ""
    """Who holds the port: `pid 123 (python serve.py)`."""
    disks: tuple[str, ...] = ()
    """File systems without room: `/scratch (/dev/sdb1, ext4) has 0 bytes of 20 MB free`."""
    shared_memory: tuple[str, ...] = ()
    """`/dev/shm has a size of 64 MB`, where a worker complained of it."""


class WorkerEvidence(Noun, frozen=True, kw_only=True):
    """One worker (or one log file) of the attempt."""

    role: str = "worker"
    rank: int = 0
    node: str = ""
    exit: WorkerExit | None = None
    """None: it never ran, or only its log is known."""
    stderr: LogExcerpt | None = None
    stdout: LogExcerpt | None = None
    log: LogExcerpt | None = None
    """Both streams in one file, as `holdfast explain FILE` gets them."""
    first_output_at: At | None = None
    last_output_at: At | None = None
    last_step: int | None = None
    first_step: int | None = None
    """The first step that `holdfast.progress` told in this attempt."""
    saved_step: int | None = None
    """The last one that it told as saved in this attempt."""
    warm: bool = False
    """It was forked from a process that had done its imports."""
    listened: bool = False
    """It had said that it wants to know when it is to save and leave."""
    start_failed: str = ""
    """Why the process could not be started at all (`exec: No such file or directory: 'trian.py'`)."""
    counts: tuple[Count, ...] = ()
    """Where its output last stood, one entry for each thing that it counts."""
    reading: WorkerReading | None = None
    """What its words say, as its node read them. Then the excerpts and the texts of `exit` are left out."""


class AttemptEvidence(Noun, frozen=True, kw_only=True):
    """All that is known when an attempt has drained. Pure data: explaining it twice gives the same report."""

    attempt: int = 1
    workers: tuple[WorkerEvidence, ...] = ()
    stop: StopRequest | None = None
    """The first stop request that named this attempt, unless it only followed a failure of the gang's own."""
    faults: tuple[ActiveFault, ...] = ()
    memory_kills: tuple[MemoryKill, ...] = ()
    kernel: tuple[Evidence, ...] = ()
    """Lines of the kernel log within the attempt."""
    lost: tuple[LeftBehind, ...] = ()
    cut_off: str = ""
    """The owner's own node, where all others fell silent at once: its link is what failed."""
    hang: HangEvidence | None = None
    check: CheckFailure | None = None
    phase: str = "RUNNING"
    """The gang's phase in which it failed: CHECKING, PREPARING, STARTING, RUNNING."""
    deadline: Deadline = Deadline.NONE
    """The one that passed."""
    late: tuple[int, ...] = ()
    """The ranks that were not ready when that deadline passed."""
    late_words: tuple[str, ...] = ()
    """Of those, the first ones: role, index, rank and node, and what was heard of them last."""
    muster: Muster | None = None
    """Who had joined when the deadline for joining passed."""
    container: str = ""
    """What a container engine said of the job's container."""
    pai_errors: tuple[Evidence, ...] = ()
    """Lines of `*.pai.error` files; `source` is the file's name without its suffix."""
    flights: tuple[Flight, ...] = ()
    """What PyTorch's flight recorder has written of its ranks' collectives in this attempt."""
    store: str = ""
    """What became of the workers' rendezvous store, where it did not last as long as the attempt."""
    job: str = ""
    meeting: str = ""
    """MASTER_ADDR:MASTER_PORT, as the workers got them; empty where they were not let go."""
    stop_asked_at: At | None = None
    """When the gang was told to stop: exits after it are collateral."""
    grace_s: float | None = None
    """How long its workers then had between SIGTERM and SIGKILL, in seconds."""
    utc_offset_s: float = 0.0
    """Local time minus UTC where the job was started: of the times that sentences name."""
    passed_on: tuple[int, ...] = ()
    """Signals that holdfast got and passed on to the workers during the attempt."""
    progressed: bool = False
    dropped_bytes: dict[str, int] = {}
    """Of the workers' output, what a console left out since its reader had stopped reading, by the console's name."""
    checkpoints: tuple[str, ...] = ()
    """Files that workers had open for writing in this attempt, and finished."""
    surroundings: Surroundings | None = None
    addresses: dict[str, str] = {}
    """Of each node by its name, where peers reach it; empty where there is one node."""
    platform: tuple[Evidence, ...] = ()
    """What the platform says of lost nodes and of the job, with the command that shows it as the source."""
    beside: tuple[SideFailure, ...] = ()
    """Hooks and required daemons that failed, and whose failure is the attempt's."""
    unanswered: tuple[LeftBehind, ...] = ()
    """Nodes that gave no evidence in time (`silent_s`): of their ranks only the exits are known."""

    def zone(self, _: float) -> float:
        """`utc_offset_s` for `in_words.clock`: one zone for a whole report."""
        return self.utc_offset_s
