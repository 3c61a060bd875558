"""All evidence of one attempt's end, collected before it is judged.

`holdfast.explain.explain` makes the one `ExitReport` from an `AttemptEvidence`. A live run fills in its own
observations. `holdfast explain FILE…` has only logs, one `WorkerEvidence` per file, and perhaps an exit status.
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
    """The kept parts of one stream: its end, and cut-outs around the hits of a scan of the earlier part."""

    #: The source: `worker-1 stderr`, or a file's name.
    source: str
    #: The end of the stream, decoded with replacement characters.
    text: str = ""
    #: Bytes of the stream before `text`.
    skipped_bytes: int = 0
    #: Cut-outs (a hit with the lines around it) of the skipped part, in the order of the stream.
    cuttings: tuple[str, ...] = ()
    #: The number of cuttings, from the first, after which the log shows that the program went on with its work.
    settled: int = 0
    #: The line number of `text`'s first line in the stream.
    first_line: int = 1
    #: The line number of each cutting's first line, where known.
    cutting_lines: tuple[int, ...] = ()
    #: When the stream was last written, in seconds since the epoch. It supplies the year if the log's times have none.
    written_at: float | None = None
    #: Local time minus UTC at that moment, in seconds. Times in the log without a zone are local times.
    utc_offset_s: float = 0.0


class StopSource(enum.StrEnum):
    """The source of a stop request."""

    OPERATOR = "operator"
    SIGNAL = "signal"
    TIME_LIMIT = "time limit"
    #: A worker whose file timer (of torch) expired.
    TIMER = "timer"
    DISK_CLEANER = "disk cleaner"
    #: A component's file `<component>.pai.error` with ACTION KILL.
    COMPONENT = "component"
    FAULT = "fault"
    HANG = "hang"
    SUPERVISOR = "supervisor"
    JOURNAL = "journal"
    #: New nodes have joined, and the job wants them to take part at once.
    GROWTH = "growth"
    #: Slurm or Kubernetes: a preemption, a time limit, a cancelled job.
    PLATFORM = "platform"
    #: A required daemon that has ended finally.
    DAEMON = "daemon"

    @classmethod
    def _missing_(cls, value: object) -> StopSource:
        """Map an unknown value to COMPONENT: journals of 0.1.0 have the component's file name as the source."""
        return cls.COMPONENT


class Deadline(enum.StrEnum):
    """A deadline of the gang that an attempt missed."""

    NONE = ""
    PREPARE = "prepare"
    START = "start"
    #: Too few nodes had joined at the deadline.
    JOIN = "join"


class StopRequest(Noun, frozen=True, kw_only=True):
    """A request of a person or a component to stop the job or the attempt, with a reason. Nothing else requests a stop.

    `phrase` is the catalogue's phrase for the report: StoppedByOperator, TimeLimitReached, KilledByDiskCleaner …
    """

    reason: str
    solution: str = ""
    source: StopSource = StopSource.OPERATOR
    #: The name of the file with a component's request.
    component: str = ""
    phrase: str = Phrase.STOPPED_BY_OPERATOR
    #: The exit code, if the requesting component chose its own; None: the phrase's row has it.
    code: int | None = None
    at: At | None = None
    #: The user and process that requested the stop; empty: not known.
    who: str = ""
    #: The number of the signal to holdfast, if that was the request.
    signal: int | None = None
    #: Seconds that workers have to exit; None: the job's own value. A second Ctrl-C asks for 0.
    grace_s: float | None = None
    #: Whether every process of the job got the signal already, so that holdfast need not send it to the workers.
    everywhere: bool = False
    #: Seconds to wait before the first signal, because holdfast may learn that every process of the job got it already.
    hold_s: float = 0.0
    #: Seconds that workers that listen may take to save before any signal is sent.
    save_s: float = 0.0
    #: Seconds until the platform kills all processes. Holdfast kills them by then, even if other fields allow more.
    #: None: no such time is known.
    within_s: float | None = None
    #: Whether the request ends the job; False: it ends only this attempt, and recovery decides what follows.
    final: bool = True
    #: Whether only this run ends: if the platform starts the job again, it continues in that run.
    requeue: bool = False


class MemoryKill(Noun, frozen=True, kw_only=True):
    """A kernel or cgroup memory kill, distinguished from any other SIGKILL."""

    #: The source: `cgroup v2 memory.events`, `cgroup v1 memory.oom_control`, `kernel log`.
    source: str
    #: The line or counter that shows the kill.
    text: str
    #: The node on which it happened, because pids of two nodes are often equal. Empty: the job has one node.
    node: str = ""
    rank: int | None = None
    pid: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    #: Resident memory of the killed process in bytes, if the kernel logged it.
    rss_bytes: int | None = None
    at: At | None = None
    #: The owner of the limit: `worker` (the worker's own group), `container` (holdfast's group), or `host`.
    scope: str = "host"
    #: Who set the limit, if it is a limit of a group around holdfast: `Slurm's step 12.0 (sbatch --mem)`.
    limited_by: str = ""
    #: The number of kills by the counter of a group of several ranks; 0: the kill is of one process.
    count: int = 0


class ThreadState(Noun, frozen=True, kw_only=True):
    """One thread of a rank in hang evidence: its kernel state, its wait, and its Python frames if it has any."""

    tid: int
    name: str = ""
    #: The state's letter in /proc/PID/stat: R, S, D, T, t, Z.
    state: str = ""
    #: The kernel's wait channel or the system call, if the kernel shows it.
    waits_in: str = ""
    #: The frames, innermost first: `function (file:line)`; a native frame is `function (libtorch_cpu.so)`.
    frames: tuple[str, ...] = ()
    #: The thread's process, if it is a descendant of the rank's process. 0: not known.
    pid: int = 0
    #: CPU seconds that this thread has used so far.
    cpu_s: float = 0.0
    #: How often a thread that runs has given up its CPU by itself, and its page faults without input. A thread that
    #: does nothing but compute in place has next to none of either.
    switches: int = 0
    faults: int = 0
    #: The descriptor of its system call, with the file: `0 pipe:[8123]`, `7 /data/shard.bin`.
    file: str = ""


class RankSnapshot(Noun, frozen=True, kw_only=True):
    """The state of one rank at one moment, before any worker was stopped."""

    rank: int
    pid: int
    at: At
    threads: tuple[ThreadState, ...] = ()
    #: CPU seconds that the rank's whole process tree has used so far.
    cpu_s: float = 0.0
    #: Bytes that the process tree has read and written so far through files and pipes. A silent download increases it.
    io_bytes: int = 0
    last_output_at: At | None = None
    #: Whether the rank has printed since, but only lines that repeat earlier ones.
    repeats: bool = False
    last_step: int | None = None
    last_step_at: At | None = None
    #: The source of the stacks, `py-spy` or `faulthandler`, or why there are none: `the process is stopped and cannot
    #: dump`.
    stack_source: str = ""


class HangEvidence(Noun, frozen=True, kw_only=True):
    """The evidence of a hang: two or more snapshots of every rank without progress, and the rank that differs."""

    attempt: int
    silent_s: float
    #: The samples in time order; each has one snapshot per rank.
    looks: tuple[tuple[RankSnapshot, ...], ...] = ()
    #: The rank that differs from the others; several if the snapshots cannot decide between them.
    culprits: tuple[int, ...] = ()
    #: The reason in one sentence: `rank 2 is stopped (state T) while ranks 0, 1, 3 wait in all_reduce`.
    why: str = ""
    at: At | None = None


class CheckFailure(Noun, frozen=True, kw_only=True):
    """A failed pre-check, with the facts that the report needs."""

    check: str
    message: str
    solution: str = ""
    nodes: tuple[str, ...] = ()
    blame: str = "hardware"
    inconclusive: bool = False
    #: Whether the check failed while the workers ran, not before they started.
    running: bool = False
    #: The bad devices, if the check names any.
    devices: tuple[str, ...] = ()
    #: Whether nodes or devices must be left out, so that the job may work on others.
    elsewhere: bool = False
    #: The check asks to stop the job: no other attempt may start, wherever it runs.
    ends_job: bool = False
    #: The phrase of the exit, if it is a special one (a prerequisite that could not be fetched); empty: CheckFailed.
    phrase: str = ""


class GangShortfall(Noun, frozen=True, kw_only=True):
    """A gang that waited too long for nodes to join: which nodes joined and which are missing."""

    #: The minimum number of nodes.
    least: int
    #: The nodes that joined, in the order of their ranks: `gpu-1 (10.1.2.7)`.
    came: tuple[str, ...] = ()
    #: The nodes that joined and cannot be used.
    unfit: tuple[str, ...] = ()
    #: The missing `--node-rank` numbers, if nodes have such numbers.
    missing_ranks: tuple[int, ...] = ()
    #: The names of the nodes that never joined, if the starter knows the nodes by name.
    missing: tuple[str, ...] = ()
    waited_s: float = 0.0
    #: The address that nodes dial, HOST:PORT.
    endpoint: str = ""


class LeftBehind(Noun, frozen=True, kw_only=True):
    """A node that was lost or lost its workers: it fell silent or left, or its agent restarted or stopped them."""

    node: str
    silent_s: float
    ranks: tuple[int, ...] = ()
    #: Why the node, or its workers, are lost, if it was reported; empty: no reason was reported (but see `back` and
    #: `memory_kill`).
    why: str = ""
    #: The ages of the node's last messages in seconds, when the silence was noticed, the latest first.
    words_s: tuple[float, ...] = ()
    #: The node is reachable, but its workers have ended: its agent restarted, or stopped them.
    back: bool = False
    #: The node has left and will not come back: it cannot answer any request.
    gone: bool = False
    #: The memory kill that ended the agent, and its workers with it.
    memory_kill: MemoryKill | None = None


class Leftover(Noun, frozen=True, kw_only=True):
    """A process that an ended rank had left running, and that did not end in time."""

    #: The rank that left it; None: it has not the rank's environment.
    rank: int | None = None
    node: str = ""
    pid: int
    command: str
    #: Seconds from the rank's end to the signal; None: not known.
    after_s: float | None = None
    #: Whether it got SIGKILL; otherwise it ended after SIGTERM.
    killed: bool = False


class HostFacts(Noun, frozen=True, kw_only=True):
    """Facts of this machine about the file, module, port or disk space that the workers lacked."""

    #: The Python that ran the workers; empty if the command is not known to run Python.
    python: str = ""
    #: The workers' command itself names the Python, so no option of holdfast changes it.
    by_command: bool = False
    #: The module that a worker did not find.
    module: str = ""
    #: Pythons that have the module: those of active environments, and holdfast's own.
    found_in: tuple[str, ...] = ()
    #: The port that was already in use.
    port: int | None = None
    #: The port that the user set for the job.
    asked_port: int | None = None
    #: The process that holds the port: `pid 123 (python serve.py)`.
    holder: str = ""
    #: The full file systems: `/scratch (/dev/sdb1, ext4) has 0 bytes of 20 MB free`.
    disks: tuple[str, ...] = ()
    #: The size of /dev/shm, if a worker reported an error about it: `/dev/shm has a size of 64 MB`.
    shared_memory: tuple[str, ...] = ()


class WorkerEvidence(Noun, frozen=True, kw_only=True):
    """One worker (or one log file) of the attempt."""

    role: str = "worker"
    rank: int = 0
    node: str = ""
    #: The worker's exit; None: it never ran, or only its log is known.
    exit: WorkerExit | None = None
    stderr: LogExcerpt | None = None
    stdout: LogExcerpt | None = None
    #: Both streams in one file, which `holdfast explain FILE` gets.
    log: LogExcerpt | None = None
    first_output_at: At | None = None
    last_output_at: At | None = None
    last_step: int | None = None
    #: The first step that the worker reported with `holdfast.progress` in this attempt.
    first_step: int | None = None
    #: The last step that the worker reported as saved in this attempt.
    saved_step: int | None = None
    #: Whether the worker was forked from a process that had done its imports.
    warm: bool = False
    #: Whether the worker had asked to be notified when it must save and exit.
    listened: bool = False
    #: Why the process could not be started (`exec: No such file or directory: 'trian.py'`); empty: it was started.
    start_failed: str = ""
    #: The last counts in the worker's output, one for each name.
    counts: tuple[Count, ...] = ()
    #: The reading of the worker's log, made on its node. Then the excerpts and the texts of `exit` are left out.
    reading: WorkerReading | None = None


class AttemptEvidence(Noun, frozen=True, kw_only=True):
    """All evidence of a drained attempt. It is pure data, so explaining it twice gives the same report."""

    attempt: int = 1
    workers: tuple[WorkerEvidence, ...] = ()
    #: The first stop request for this attempt, unless it only followed a failure of the gang itself.
    stop: StopRequest | None = None
    faults: tuple[ActiveFault, ...] = ()
    memory_kills: tuple[MemoryKill, ...] = ()
    #: Lines of the kernel log from the time of the attempt.
    kernel: tuple[Evidence, ...] = ()
    lost: tuple[LeftBehind, ...] = ()
    #: The owner's own node, if all other nodes fell silent at once: the owner's link failed.
    cut_off: str = ""
    hang: HangEvidence | None = None
    check: CheckFailure | None = None
    #: The phase in which the attempt failed: CHECKING, PREPARING, STARTING, RUNNING.
    phase: str = "RUNNING"
    #: The deadline that the attempt missed.
    deadline: Deadline = Deadline.NONE
    #: The ranks that were not ready when that deadline passed.
    late: tuple[int, ...] = ()
    #: A clause for each of the first few late ranks: role, index, rank, node, and the last known state.
    late_words: tuple[str, ...] = ()
    #: The nodes that had joined at the deadline for joining; None: no such deadline passed.
    muster: GangShortfall | None = None
    #: A container engine's statement about the job's container.
    container: str = ""
    #: Lines of `*.pai.error` files; `source` is the file's name without its suffix.
    pai_errors: tuple[Evidence, ...] = ()
    #: The collectives of the ranks in this attempt, from PyTorch's flight recorder.
    flights: tuple[FlightDump, ...] = ()
    #: How the workers' rendezvous store ended, if it ended before the attempt.
    store: str = ""
    job: str = ""
    #: MASTER_ADDR:MASTER_PORT of the workers; empty if no worker was started.
    meeting: str = ""
    #: When the gang was asked to stop; exits after that are collateral.
    stop_asked_at: At | None = None
    #: Seconds that the workers had between that stop's SIGTERM and SIGKILL.
    grace_s: float | None = None
    #: Local time minus UTC on the machine that started the job, in seconds; sentences show times in this zone.
    utc_offset_s: float = 0.0
    #: Signals that holdfast received and forwarded to the workers during the attempt.
    passed_on: tuple[int, ...] = ()
    progressed: bool = False
    #: Console's name → bytes of output that it left out, because its reader had stopped reading.
    dropped_bytes: dict[str, int] = {}
    #: Files that workers opened for writing and completed in this attempt.
    checkpoints: tuple[str, ...] = ()
    surroundings: HostFacts | None = None
    #: The address at which peers reach each node, by name; empty if the job has one node.
    addresses: dict[str, str] = {}
    #: The platform's statements about lost nodes and the job; `source` is the command that shows the statement.
    platform: tuple[Evidence, ...] = ()
    #: The failures of hooks and required daemons that make the attempt fail.
    beside: tuple[SideFailure, ...] = ()
    #: Processes that ended ranks had left running, and that holdfast ended.
    leftovers: tuple[Leftover, ...] = ()
    #: Nodes that sent no evidence within `silent_s`: only the exits of their ranks are known.
    unanswered: tuple[LeftBehind, ...] = ()

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, as a `Zone` for `human_format.clock`: the whole report uses one zone."""
        return self.utc_offset_s


class LostProcess(Noun, frozen=True, kw_only=True):
    """A process of the job that outlived the owner. `command`: its command line; empty if unknown."""

    pid: int
    command: str = ""


class LostOwner(Noun, frozen=True, kw_only=True):
    """The evidence about a job whose owner died without writing a report. Times are seconds since the epoch."""

    job: str
    host: str
    pid: int
    #: When the owner died, if the process that reaped it reported that; else its last sign of life.
    died_at: float
    #: The number of the signal that ended the owner, if the process that reaped it reported it.
    signal: int | None = None
    #: The memory kill that the control group has counted meanwhile: the cause of the signal.
    memory_kill: MemoryKill | None = None
    #: Whether the machine was rebooted since the owner recorded its process.
    host_went_down: bool = False
    #: The number of the attempt; 0: none had begun.
    attempt: int = 0
    #: The last known state in words: `attempt 2, ranks 0 to 2 up, rank 3 failed`.
    last_known: str = ""
    #: The last events of the journal, each with its time.
    history: tuple[tuple[float, str], ...] = ()
    #: The path of the owner's lock file.
    lock: str = ""
    #: Processes that outlived the owner in the job's control groups, and were killed since.
    killed: tuple[LostProcess, ...] = ()
    #: Processes of the job that are still alive.
    left: tuple[LostProcess, ...] = ()
    #: Why the platform was to start the job again, if the owner had ended for that; else empty.
    queued: str = ""
    #: The user who removed the job from the platform's queue, and the reason; empty if unknown.
    dropped: str = ""
    #: Local time minus UTC in seconds, on the machine that found the loss.
    utc_offset_s: float = 0.0

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, as a `Zone` for `human_format.clock`."""
        return self.utc_offset_s
