"""All evidence of one attempt's end, collected before it is judged.

`holdfast.explain.explain` takes an `AttemptEvidence` and gives the one `ExitReport`. A live run fills in what it saw
itself; `holdfast explain FILE…` has only logs, one `WorkerEvidence` a file, and perhaps an exit status.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Evidence, WorkerExit
from holdfast.model.faults import ActiveFault
from holdfast.model.flight_records import FlightDump
from holdfast.model.noun_base import At, Noun
from holdfast.model.phrases import Phrase
from holdfast.model.progress_facts import Count
from holdfast.model.sidecar_ends import SideFailure
from holdfast.model.worker_reading import WorkerReading

#: Seconds. If a worker died of a signal and holdfast got the same signal within this time, both had the same sender.
SAME_SIGNAL_S = 1.0


class LogExcerpt(Noun, frozen=True, kw_only=True):
    """What is kept of one stream: its end, and cut-outs around the hits of a scan of the earlier part."""

    #: `worker-1 stderr`, or a file's name.
    source: str
    #: The end of the stream, decoded with replacement characters.
    text: str = ""
    #: Bytes of the stream before `text`.
    skipped_bytes: int = 0
    #: Cut-outs (a hit with the lines around it) of the skipped part, in the order of the stream.
    cuttings: tuple[str, ...] = ()
    #: How many of the cuttings, from the first, are followed by a sign that the program went on with its work.
    settled: int = 0
    #: The line number of `text`'s first line in the stream.
    first_line: int = 1
    #: The line number of each cutting's first line, where known.
    cutting_lines: tuple[int, ...] = ()
    #: When the stream was last written, in seconds since the epoch: it supplies the year that its stamps lack.
    written_at: float | None = None
    #: Local time minus UTC at that moment, in seconds: stamps without a zone are local time.
    utc_offset_s: float = 0.0


class StopSource(enum.StrEnum):
    """The source of a request to stop."""

    OPERATOR = "operator"
    SIGNAL = "signal"
    TIME_LIMIT = "time limit"
    #: A worker's own request, from torch's file timers.
    TIMER = "timer"
    DISK_CLEANER = "disk cleaner"
    #: A `<component>.pai.error` with ACTION KILL.
    COMPONENT = "component"
    FAULT = "fault"
    HANG = "hang"
    SUPERVISOR = "supervisor"
    JOURNAL = "journal"
    #: Nodes have joined that are to take part now.
    GROWTH = "growth"
    #: Slurm, Kubernetes: a preemption, a time limit, a cancelled job.
    PLATFORM = "platform"
    #: A required daemon has ended for good.
    DAEMON = "daemon"

    @classmethod
    def _missing_(cls, value: object) -> StopSource:
        """Journals of 0.1.0 have the component's file name here."""
        return cls.COMPONENT


class Deadline(enum.StrEnum):
    """A deadline of the gang that an attempt missed."""

    NONE = ""
    PREPARE = "prepare"
    START = "start"
    #: Too few nodes had joined.
    JOIN = "join"


class StopRequest(Noun, frozen=True, kw_only=True):
    """A person or a component requested a stop of the job or the attempt, with a reason. No other event requests a
    kill.

    `phrase` is the catalogue's phrase for the report: StoppedByOperator, TimeLimitReached, KilledByDiskCleaner …
    """

    reason: str
    solution: str = ""
    source: StopSource = StopSource.OPERATOR
    #: The name of the file with a component's request.
    component: str = ""
    phrase: str = Phrase.STOPPED_BY_OPERATOR
    #: The code of a phrase that is the requesting component's own; None: the phrase's row has it.
    code: int | None = None
    at: At | None = None
    #: The user and process that requested it, where known.
    who: str = ""
    #: The signal that holdfast itself got, where that was the request.
    signal: int | None = None
    #: Seconds that workers have to exit; None: the job's own value. A second Ctrl-C requests 0.
    grace_s: float | None = None
    #: The signal came to every process of the job: holdfast need not send it to the workers.
    everywhere: bool = False
    #: Seconds in which it may still turn out that the signal came to every process of the job.
    hold_s: float = 0.0
    #: Seconds that workers that listen for it may take to save before any signal is sent.
    save_s: float = 0.0
    #: Seconds until all remaining processes are killed, even if other fields allow more: then the platform kills them
    #: all. None: no such moment is known.
    within_s: float | None = None
    #: True ends the job; False ends this attempt, and recovery decides about the rest.
    final: bool = True
    #: The job continues in another run, where the platform starts one: only this run ends.
    requeue: bool = False


class MemoryKill(Noun, frozen=True, kw_only=True):
    """A kernel or cgroup memory kill, distinguished from any other SIGKILL."""

    #: `cgroup v2 memory.events`, `cgroup v1 memory.oom_control`, `kernel log`
    source: str
    #: The line or counter that shows it.
    text: str
    #: The node of the kernel: pids of two nodes are often equal. Empty: there is only one node.
    node: str = ""
    rank: int | None = None
    pid: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    #: Resident memory of the killed process in bytes, where the kernel logged it.
    rss_bytes: int | None = None
    at: At | None = None
    #: `worker` (a limit of the worker's own), `container` (the group that holdfast runs in), or `host`.
    scope: str = "host"
    #: Who set the limit, where it belongs to a group around holdfast: `Slurm's step 12.0 (sbatch --mem)`.
    limited_by: str = ""
    #: The number of kills that the counter of a group of several ranks has seen; 0: it is about one process.
    count: int = 0


class ThreadState(Noun, frozen=True, kw_only=True):
    """One thread of a rank when hang evidence was taken: kernel state, its wait, and Python frames where there
    are any."""

    tid: int
    name: str = ""
    #: The letter of /proc/PID/stat: R, S, D, T, t, Z.
    state: str = ""
    #: The kernel's wait channel or the system call, where the kernel shows it.
    waits_in: str = ""
    #: Innermost first: `function (file:line)`; native frames, from a closer look, `function (libtorch_cpu.so)`.
    frames: tuple[str, ...] = ()
    #: The process it belongs to, where that is a descendant of the rank. 0: not known.
    pid: int = 0
    #: CPU seconds this thread alone has used so far.
    cpu_s: float = 0.0
    #: The descriptor that its system call is about, and its file: `0 pipe:[8123]`, `7 /data/shard.bin`.
    file: str = ""


class RankSnapshot(Noun, frozen=True, kw_only=True):
    """One rank's state at one look, taken before any worker was stopped."""

    rank: int
    pid: int
    at: At
    threads: tuple[ThreadState, ...] = ()
    #: CPU seconds the whole process tree of the rank has used so far.
    cpu_s: float = 0.0
    #: Bytes that the process tree has read and written so far through files and pipes: a silent download moves this.
    io_bytes: int = 0
    last_output_at: At | None = None
    last_step: int | None = None
    last_step_at: At | None = None
    #: The source of the stacks, `py-spy` or `faulthandler`, or why there are none: `the process is stopped and cannot
    #: dump`.
    stack_source: str = ""


class HangEvidence(Noun, frozen=True, kw_only=True):
    """No rank has moved: two or more looks at every rank, and the rank that differs."""

    attempt: int
    silent_s: float
    #: Outer: looks in time order. Inner: one snapshot a rank.
    looks: tuple[tuple[RankSnapshot, ...], ...] = ()
    #: The rank that differs from the rest; several where they cannot be distinguished.
    culprits: tuple[int, ...] = ()
    #: One sentence: `rank 2 is stopped (state T) while ranks 0, 1, 3 wait in all_reduce`.
    why: str = ""
    at: At | None = None


class CheckFailure(Noun, frozen=True, kw_only=True):
    """A failed pre-check, as the report needs it."""

    check: str
    message: str
    solution: str = ""
    nodes: tuple[str, ...] = ()
    blame: str = "hardware"
    inconclusive: bool = False
    #: It failed while the workers ran, not before they started.
    running: bool = False
    #: The devices that it names, where it can.
    devices: tuple[str, ...] = ()
    #: The check asks to leave nodes or devices out: another place may do.
    elsewhere: bool = False
    #: The phrase, where the failure has an exit of its own (a prerequisite that could not be fetched); empty:
    #: CheckFailed.
    phrase: str = ""


class GangShortfall(Noun, frozen=True, kw_only=True):
    """The nodes of a gang that has waited too long for others."""

    #: With fewer nodes than this it cannot begin.
    least: int
    #: `gpu-1 (10.1.2.7)`, in the order of their ranks.
    came: tuple[str, ...] = ()
    #: Those of them that cannot be used.
    unfit: tuple[str, ...] = ()
    #: Where nodes have a `--node-rank`: the numbers that no node has.
    missing_ranks: tuple[int, ...] = ()
    #: Where a starter knows the nodes by name: the nodes that never joined.
    missing: tuple[str, ...] = ()
    waited_s: float = 0.0
    #: Where nodes dial the owner.
    endpoint: str = ""


class LeftBehind(Noun, frozen=True, kw_only=True):
    """A node that stopped answering."""

    node: str
    silent_s: float
    ranks: tuple[int, ...] = ()
    #: What is known about its end; empty: it was silent, and no more is known.
    why: str = ""
    #: Seconds before the silence was noticed at which its last messages came, the latest first.
    words_s: tuple[float, ...] = ()
    #: Its agent has restarted: the node is reachable, and all its processes have ended.
    back: bool = False
    #: It has left and will not come back: it cannot answer any question.
    gone: bool = False
    #: Why its agent died, and its workers with it.
    memory_kill: MemoryKill | None = None


class HostFacts(Noun, frozen=True, kw_only=True):
    """What this machine knows about the file, module, port or space that the workers lacked."""

    #: The Python that ran the workers; empty where that is not known to be a Python.
    python: str = ""
    #: The workers' command itself names the Python: no option of holdfast changes it.
    by_command: bool = False
    #: The module that was not found.
    module: str = ""
    #: Pythons of other environments that have the module: the active ones, and holdfast's own.
    found_in: tuple[str, ...] = ()
    #: The port that was taken.
    port: int | None = None
    #: The port that the user gave holdfast for the job.
    asked_port: int | None = None
    #: The process that holds the port: `pid 123 (python serve.py)`.
    holder: str = ""
    #: File systems without room: `/scratch (/dev/sdb1, ext4) has 0 bytes of 20 MB free`.
    disks: tuple[str, ...] = ()
    #: `/dev/shm has a size of 64 MB`, where a worker complained about it.
    shared_memory: tuple[str, ...] = ()


class WorkerEvidence(Noun, frozen=True, kw_only=True):
    """One worker (or one log file) of the attempt."""

    role: str = "worker"
    rank: int = 0
    node: str = ""
    #: None: it never ran, or only its log is known.
    exit: WorkerExit | None = None
    stderr: LogExcerpt | None = None
    stdout: LogExcerpt | None = None
    #: Both streams in one file, as `holdfast explain FILE` gets them.
    log: LogExcerpt | None = None
    first_output_at: At | None = None
    last_output_at: At | None = None
    last_step: int | None = None
    #: The first step that it reported with `holdfast.progress` in this attempt.
    first_step: int | None = None
    #: The last step that it reported as saved in this attempt.
    saved_step: int | None = None
    #: It was forked from a process that had done its imports.
    warm: bool = False
    #: It had asked to be notified when it must save and exit.
    listened: bool = False
    #: Why the process could not be started at all (`exec: No such file or directory: 'trian.py'`).
    start_failed: str = ""
    #: Its last counts in the output, one entry for each name.
    counts: tuple[Count, ...] = ()
    #: The reading of its log, made on its node. Then the excerpts and the texts of `exit` are left out.
    reading: WorkerReading | None = None


class AttemptEvidence(Noun, frozen=True, kw_only=True):
    """All evidence of a drained attempt. Pure data: explaining it twice gives the same report."""

    attempt: int = 1
    workers: tuple[WorkerEvidence, ...] = ()
    #: The first stop request for this attempt, unless it only followed a failure of the gang's own.
    stop: StopRequest | None = None
    faults: tuple[ActiveFault, ...] = ()
    memory_kills: tuple[MemoryKill, ...] = ()
    #: Lines of the kernel log within the attempt.
    kernel: tuple[Evidence, ...] = ()
    lost: tuple[LeftBehind, ...] = ()
    #: The owner's own node, where all other nodes became silent at once: the owner's link failed.
    cut_off: str = ""
    hang: HangEvidence | None = None
    check: CheckFailure | None = None
    #: The gang's phase in which it failed: CHECKING, PREPARING, STARTING, RUNNING.
    phase: str = "RUNNING"
    #: The deadline that passed.
    deadline: Deadline = Deadline.NONE
    #: The ranks that were not ready when that deadline passed.
    late: tuple[int, ...] = ()
    #: The first of them: role, index, rank and node, and the last that was heard from them.
    late_words: tuple[str, ...] = ()
    #: The nodes that had joined when the deadline for joining passed.
    muster: GangShortfall | None = None
    #: A container engine's statement about the job's container.
    container: str = ""
    #: Lines of `*.pai.error` files; `source` is the file's name without its suffix.
    pai_errors: tuple[Evidence, ...] = ()
    #: The collectives of the ranks in this attempt, from PyTorch's flight recorder.
    flights: tuple[FlightDump, ...] = ()
    #: What happened to the workers' rendezvous store, where it ended before the attempt.
    store: str = ""
    job: str = ""
    #: MASTER_ADDR:MASTER_PORT of the workers; empty where the workers were not started.
    meeting: str = ""
    #: When the gang got the command to stop: exits after it are collateral.
    stop_asked_at: At | None = None
    #: Seconds that its workers then had between SIGTERM and SIGKILL.
    grace_s: float | None = None
    #: Local time minus UTC in seconds where the job was started, for the times in sentences.
    utc_offset_s: float = 0.0
    #: Signals that holdfast got and forwarded to the workers during the attempt.
    passed_on: tuple[int, ...] = ()
    progressed: bool = False
    #: Bytes of the workers' output that a console left out because its reader had stopped reading, by the console's
    #: name.
    dropped_bytes: dict[str, int] = {}
    #: Files that workers had opened for writing in this attempt and completed.
    checkpoints: tuple[str, ...] = ()
    surroundings: HostFacts | None = None
    #: The address of each node by name, where peers reach it; empty where there is one node.
    addresses: dict[str, str] = {}
    #: The platform's statements about lost nodes and the job, with the command that shows each as the source.
    platform: tuple[Evidence, ...] = ()
    #: Hooks and required daemons whose failure is the attempt's.
    beside: tuple[SideFailure, ...] = ()
    #: Nodes that gave no evidence within `silent_s`: of their ranks only the exits are known.
    unanswered: tuple[LeftBehind, ...] = ()

    def zone(self, _: float) -> float:
        """`utc_offset_s` for `in_words.clock`: one zone for a whole report."""
        return self.utc_offset_s
