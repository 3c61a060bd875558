"""All evidence of one attempt's end, collected before it is judged.

`holdfast.explain.explain` makes the one `ExitReport` from an `AttemptEvidence`. A run has all the evidence. `holdfast
explain FILE…` has only logs (one `WorkerEvidence` per file), and perhaps an exit status.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Evidence, SourceLines, WorkerExit
from holdfast.model.faults import ActiveFault
from holdfast.model.flight_records import FlightDump
from holdfast.model.noun_base import At, Noun
from holdfast.model.phrases import Phrase
from holdfast.model.progress_facts import Count
from holdfast.model.sidecar_ends import SideFailure
from holdfast.model.worker_reading import WorkerReading

#: If a worker died of a signal that holdfast got too, within this many seconds, both signals count as from one sender.
SAME_SIGNAL_S = 1.0


class LogExcerpt(Noun, frozen=True, kw_only=True):
    """The kept parts of a log stream: its end, and cut-outs of earlier parts around lines that matched a pattern."""

    #: The origin of the log: `worker-1 stderr`, or a file's name.
    source: str
    #: The kept end of the stream as text. Each invalid byte is replaced by U+FFFD.
    text: str = ""
    #: The number of bytes of the stream before `text`.
    skipped_bytes: int = 0
    #: Cut-outs of the skipped part, in the order of the stream. Each has a matched line with the lines around it.
    cuttings: tuple[str, ...] = ()
    #: How many of the first cut-outs are about trouble that the program survived: its output shows work after them.
    settled: int = 0
    #: The line number of `text`'s first line in the stream.
    first_line: int = 1
    #: The number in the stream of each cut-out's first line; empty: not known.
    cutting_lines: tuple[int, ...] = ()
    #: When the stream was last written, in seconds since the epoch. It gives the year for times in the log that lack
    #: one.
    written_at: float | None = None
    #: Local time minus UTC when the stream was last written, in seconds. Times in the log without a zone are local
    #: times.
    utc_offset_s: float = 0.0


class StopSource(enum.StrEnum):
    """The kinds of source of a stop request."""

    OPERATOR = "operator"
    SIGNAL = "signal"
    TIME_LIMIT = "time limit"
    #: A worker's file timer (of torch) has expired.
    TIMER = "timer"
    DISK_CLEANER = "disk cleaner"
    #: A component's file `<component>.pai.error` contains ACTION KILL.
    COMPONENT = "component"
    FAULT = "fault"
    HANG = "hang"
    SUPERVISOR = "supervisor"
    JOURNAL = "journal"
    #: New nodes have joined, and the job uses new nodes at once.
    GROWTH = "growth"
    #: The platform, Slurm or Kubernetes: a preemption, a time limit, a cancelled job.
    PLATFORM = "platform"
    #: A required daemon has ended and will not be restarted.
    DAEMON = "daemon"

    @classmethod
    def _missing_(cls, value: object) -> StopSource:
        """Map an unknown value to COMPONENT: journals of release 0.1.0 have the name of the component's file instead
        of a kind.
        """
        return cls.COMPONENT


class Deadline(enum.StrEnum):
    """The deadlines of the gang that an attempt can miss."""

    NONE = ""
    PREPARE = "prepare"
    START = "start"
    #: Too few nodes had joined the gang at the deadline.
    JOIN = "join"


class StopRequest(Noun, frozen=True, kw_only=True):
    """A request of a person or a component to stop the job or the attempt, with a reason. All stop requests have this
    form.

    `phrase` is the catalogue's phrase for the report: StoppedByOperator, TimeLimitReached, KilledByDiskCleaner …
    """

    reason: str
    solution: str = ""
    source: StopSource = StopSource.OPERATOR
    #: The name of the file by which a component requests the stop.
    component: str = ""
    phrase: str = Phrase.STOPPED_BY_OPERATOR
    #: The component's exit code; None: use the code of the phrase's row in the catalogue.
    code: int | None = None
    at: At | None = None
    #: The user and process that made the request; empty: not known.
    who: str = ""
    #: The number of the signal that holdfast received as the request; None: the request was no signal.
    signal: int | None = None
    #: Seconds that workers may take to exit after the first signal; None: the job's setting. A second Ctrl-C sets 0.
    grace_s: float | None = None
    #: Whether every process of the job has already got the signal, so that holdfast must not send it again.
    everywhere: bool = False
    #: Seconds to wait before the first signal. Meanwhile holdfast may learn that every process has already got one.
    hold_s: float = 0.0
    #: Seconds before the first signal for workers that registered for a notice to save.
    save_s: float = 0.0
    #: Seconds until the platform kills all processes. Holdfast kills them by then, whatever the other fields allow.
    #: None: the platform has announced no such time.
    within_s: float | None = None
    #: Whether the request ends the job; False: it ends only this attempt, and the restart policy decides what follows.
    final: bool = True
    #: Whether the request ends only this run of the job. If the platform starts the job again, the job continues in
    #: that run.
    requeue: bool = False


class MemoryKill(Noun, frozen=True, kw_only=True):
    """A kill by the OOM killer of the kernel, for the host or for a control group. Other SIGKILLs have no such
    struct.
    """

    #: The origin of the information: `cgroup v2 memory.events`, `cgroup v1 memory.oom_control`, `kernel log`.
    source: str
    #: The line of the kernel log, or the counter, that shows the kill.
    text: str
    #: The node of the killed process, because pids of two nodes may be equal. Empty: the job has one node.
    node: str = ""
    rank: int | None = None
    pid: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    #: Resident memory of the killed process in bytes, if the kernel logged it.
    rss_bytes: int | None = None
    at: At | None = None
    #: Whose memory limit was exceeded: `worker` (the worker's own group), `container` (holdfast's group), or `host`.
    scope: str = "host"
    #: Who set the memory limit, if it is the limit of a group around holdfast: `Slurm's step 12.0 (sbatch --mem)`.
    limited_by: str = ""
    #: The number of kills by the counter of a control group with several ranks; 0: one known process was killed.
    count: int = 0


class ThreadState(Noun, frozen=True, kw_only=True):
    """One thread of a rank, in the evidence of a hang: its kernel state, what it waits for, and its Python frames if it
    has any.
    """

    tid: int
    name: str = ""
    #: The letter of the thread's state in /proc/PID/stat: R, S, D, T, t, Z.
    state: str = ""
    #: The wait channel of the kernel, or the system call, in which the thread waits, if the kernel shows it.
    waits_in: str = ""
    #: The frames of the thread's stack, innermost first: `function (file:line)`; a native frame is `function
    #: (libtorch_cpu.so)`.
    frames: tuple[str, ...] = ()
    #: The thread's process, if it is a descendant of the rank's process; 0: not known.
    pid: int = 0
    #: CPU seconds that this thread has used so far.
    cpu_s: float = 0.0
    #: How often the running thread has given up its CPU by itself. In a thread that only computes, this count and
    #: `faults` (page faults without a read) stay near zero.
    switches: int = 0
    faults: int = 0
    #: The file in the thread's system call, as descriptor and path: `0 pipe:[8123]`, `7 /data/shard.bin`.
    file: str = ""


#: Stacks are cut to this many frames; the innermost are kept.
MAX_FRAMES = 60


class RankSnapshot(Noun, frozen=True, kw_only=True):
    """The state of one rank at one moment, before any worker was stopped."""

    rank: int
    pid: int
    at: At
    threads: tuple[ThreadState, ...] = ()
    #: CPU seconds that the rank's whole process tree has used so far.
    cpu_s: float = 0.0
    #: Bytes that the rank's process tree has read and written so far through files and pipes. They also rise during a
    #: silent download.
    io_bytes: int = 0
    last_output_at: At | None = None
    #: Whether the rank has printed since `last_output_at`, but only repetitions of earlier lines.
    repeats: bool = False
    last_step: int | None = None
    last_step_at: At | None = None
    #: The tool that read the stacks, `py-spy` or `faulthandler`; or why there are none: `the process is stopped and
    #: cannot dump`.
    stack_source: str = ""

    @property
    def left_program(self) -> bool | None:
        """Whether the main thread has left the user's program: its stack has no frame of a module. None: the whole
        stack is not known.

        If py-spy sees no frame at all, the interpreter is ending and runs an exit handler in C.
        """
        main = next((thread for thread in self.threads if thread.tid == self.pid), None)
        if main is None or len(main.frames) >= MAX_FRAMES or (not main.frames and self.stack_source != "py-spy"):
            return None
        return not any(frame.startswith("<module>") for frame in main.frames)


class HangEvidence(Noun, frozen=True, kw_only=True):
    """The evidence of a hang: two or more snapshots of every rank without progress, and the rank that differs from the
    others.
    """

    attempt: int
    silent_s: float
    #: The samples in time order; each has one snapshot per rank.
    looks: tuple[tuple[RankSnapshot, ...], ...] = ()
    #: The ranks to blame: the one whose state differs from the others'. Several ranks: the snapshots do not show which
    #: one.
    culprits: tuple[int, ...] = ()
    #: Why these ranks are to blame, in one sentence: `rank 2 is stopped (state T) while ranks 0, 1, 3 wait in
    #: all_reduce`.
    why: str = ""
    at: At | None = None


class CheckFailure(Noun, frozen=True, kw_only=True):
    """A failed pre-check, with the facts about it that the report needs."""

    check: str
    message: str
    solution: str = ""
    nodes: tuple[str, ...] = ()
    blame: str = "hardware"
    inconclusive: bool = False
    #: Whether the check failed while the workers ran, and not before their start.
    running: bool = False
    #: The devices that the check found bad, if it names any.
    devices: tuple[str, ...] = ()
    #: Whether the job may work on other nodes or devices, without the bad ones.
    elsewhere: bool = False
    #: Whether the check demands that the job stops, so that no attempt may start on any node.
    ends_job: bool = False
    #: The phrase of the job's exit if it is not CheckFailed, as when a prerequisite could not be fetched; else empty.
    phrase: str = ""


#: The `subject` of the owner's message about a node that it has refused.
TURNED_AWAY = "turned away"


class GangShortfall(Noun, frozen=True, kw_only=True):
    """Too few nodes joined the gang in time: which nodes joined and which are missing."""

    #: The minimum number of nodes that the gang needs.
    least: int
    #: The nodes that joined, in the order of their ranks: `gpu-1 (10.1.2.7)`.
    came: tuple[str, ...] = ()
    #: The nodes that joined and cannot be used.
    unfit: tuple[str, ...] = ()
    #: The missing `--node-rank` numbers, if the nodes have such numbers.
    missing_ranks: tuple[int, ...] = ()
    #: The names of the nodes that never joined, if the starter knows the nodes by name.
    missing: tuple[str, ...] = ()
    waited_s: float = 0.0
    #: The owner's address, to which nodes connect: HOST:PORT.
    endpoint: str = ""


class LeftBehind(Noun, frozen=True, kw_only=True):
    """A node that was lost, or has lost its workers: it fell silent or left, or its agent restarted or stopped the
    workers.
    """

    node: str
    silent_s: float
    ranks: tuple[int, ...] = ()
    #: Why the node or its workers are lost. Empty: no reason was reported (see also `back` and `memory_kill`).
    why: str = ""
    #: When the node's last messages came, in seconds before the silence was noticed; the latest message first.
    words_s: tuple[float, ...] = ()
    #: Whether the node can be used: its workers have ended, but its agent has restarted, or has stopped them.
    back: bool = False
    #: Whether the node has left for good, so that it cannot answer any request.
    gone: bool = False
    #: The OOM kill that ended the agent, and with it the workers.
    memory_kill: MemoryKill | None = None


class Leftover(Noun, frozen=True, kw_only=True):
    """A process that an exited worker left running, and that holdfast ended."""

    #: The rank that left the process running; None: unknown, because the process lacks a rank's environment variables.
    rank: int | None = None
    node: str = ""
    pid: int
    command: str
    #: Seconds from the rank's exit to the signal to the process; None: not known.
    after_s: float | None = None
    #: Whether SIGKILL ended the process; False: SIGTERM did.
    killed: bool = False


class HostFacts(Noun, frozen=True, kw_only=True):
    """Facts about a node that explain why its workers lacked a file, module, port or disk space."""

    #: The path of the Python that ran the workers; empty if the workers' command is not known to run Python.
    python: str = ""
    #: Whether the workers' command names its Python. No option of holdfast can then change the Python.
    by_command: bool = False
    #: The name of the module that a worker could not import.
    module: str = ""
    #: The Pythons that have the missing module. Holdfast looks in active environments and in its own Python.
    found_in: tuple[str, ...] = ()
    #: The port that a worker needed and that was already in use.
    port: int | None = None
    #: The port that the user chose for the job; None: none.
    asked_port: int | None = None
    #: The process that holds the port: `pid 123 (python serve.py)`.
    holder: str = ""
    #: The file systems that are full: `/scratch (/dev/sdb1, ext4) has 0 bytes of 20 MB free`.
    disks: tuple[str, ...] = ()
    #: The size of /dev/shm, if a worker has reported an error about it: `/dev/shm has a size of 64 MB`.
    shared_memory: tuple[str, ...] = ()
    #: Whether a worker waited in Python's debugger.
    debugger: bool = False
    #: The rank whose standard input is a terminal; None: no rank has one.
    terminal_rank: int | None = None


class WorkerEvidence(Noun, frozen=True, kw_only=True):
    """The evidence about one worker of the attempt, or about one log file."""

    role: str = "worker"
    rank: int = 0
    node: str = ""
    #: The worker's exit; None: it never ran, or only its log is known.
    exit: WorkerExit | None = None
    stderr: LogExcerpt | None = None
    stdout: LogExcerpt | None = None
    #: The worker's whole log, if stdout and stderr share a file, as in `holdfast explain FILE`.
    log: LogExcerpt | None = None
    first_output_at: At | None = None
    last_output_at: At | None = None
    last_step: int | None = None
    #: The first step that the worker reported with `holdfast.progress` in this attempt.
    first_step: int | None = None
    #: The last step that the worker reported as saved in this attempt.
    saved_step: int | None = None
    #: Whether the worker was a fork of a prewarmed process with its imports done.
    warm: bool = False
    #: Whether the worker had registered for a notice to save and exit.
    listened: bool = False
    #: Why the process could not be started (`exec: No such file or directory: 'trian.py'`); empty: it was started.
    start_failed: str = ""
    #: The last counts (steps, epochs) in the worker's output, one for each name.
    counts: tuple[Count, ...] = ()
    #: The facts that the node has read from the worker's log. The log excerpts and the texts of `exit` are then left
    #: out.
    reading: WorkerReading | None = None
    #: The source lines around the place in which the worker failed, if the node could read them.
    source: SourceLines | None = None


class AttemptEvidence(Noun, frozen=True, kw_only=True):
    """All evidence of a drained attempt. Explaining it twice gives the same report, because it is pure data."""

    attempt: int = 1
    workers: tuple[WorkerEvidence, ...] = ()
    #: The first request to stop this attempt; None: there was none, or it came after the gang's failure.
    stop: StopRequest | None = None
    faults: tuple[ActiveFault, ...] = ()
    memory_kills: tuple[MemoryKill, ...] = ()
    #: Lines of the kernel log from the attempt's time.
    kernel: tuple[Evidence, ...] = ()
    lost: tuple[LeftBehind, ...] = ()
    #: The owner's node, if all other nodes fell silent at once; else empty. The owner's own network link has then
    #: failed.
    cut_off: str = ""
    hang: HangEvidence | None = None
    check: CheckFailure | None = None
    #: The phase in which the attempt failed: CHECKING, PREPARING, STARTING or RUNNING.
    phase: str = "RUNNING"
    #: The deadline that the attempt missed.
    deadline: Deadline = Deadline.NONE
    #: The ranks that missed the deadline.
    late: tuple[int, ...] = ()
    #: A clause for each of the first late ranks: its role, index, rank and node, and its last known state.
    late_words: tuple[str, ...] = ()
    #: The nodes that had joined by the deadline for joining; None: the attempt did not miss this deadline.
    muster: GangShortfall | None = None
    #: The container engine's record about the end of the job's container, in one line.
    container: str = ""
    #: Lines of `*.pai.error` files; `source` is the file's name without its suffix.
    pai_errors: tuple[Evidence, ...] = ()
    #: The ranks' collectives in this attempt, from PyTorch's flight recorder.
    flights: tuple[FlightDump, ...] = ()
    #: How the workers' rendezvous store ended, if it ended before the attempt; else empty.
    store: str = ""
    job: str = ""
    #: The rendezvous address of the workers, MASTER_ADDR:MASTER_PORT; empty if no worker was started.
    meeting: str = ""
    #: When the gang was asked to stop. Exits after this time are collateral.
    stop_asked_at: At | None = None
    #: Seconds between SIGTERM and SIGKILL in the stop at `stop_asked_at`.
    grace_s: float | None = None
    #: Local time minus UTC on the machine that started the job, in seconds. Reports show times in this zone.
    utc_offset_s: float = 0.0
    #: The signals that holdfast received during the attempt and forwarded to the workers.
    passed_on: tuple[int, ...] = ()
    progressed: bool = False
    #: Console → bytes of output that it did not get, because its reader had stopped reading.
    dropped_bytes: dict[str, int] = {}
    #: Checkpoint files that workers completed in this attempt.
    checkpoints: tuple[str, ...] = ()
    surroundings: HostFacts | None = None
    #: Node → the address by which its peers reach it; empty if the job has one node.
    addresses: dict[str, str] = {}
    #: The platform's answers about lost nodes and the job. `source`: the command that shows the same answer.
    platform: tuple[Evidence, ...] = ()
    #: The failures of hooks and required daemons that make the attempt count as failed.
    beside: tuple[SideFailure, ...] = ()
    #: Processes that exited workers left running, and that holdfast ended.
    leftovers: tuple[Leftover, ...] = ()
    #: The nodes that sent no evidence within `silent_s`. Only the exits of their ranks are known.
    unanswered: tuple[LeftBehind, ...] = ()

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, whatever the time.

        As the `Zone` of `human_format.clock`, this method gives all times in the report one zone.
        """
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
    #: When the owner died, by the process that reaped it; otherwise the owner's last sign of life.
    died_at: float
    #: The signal that ended the owner, by the process that reaped it; None: not known.
    signal: int | None = None
    #: The OOM kill in the owner's control group since its last sign of life. It explains the signal.
    memory_kill: MemoryKill | None = None
    #: Whether the machine has been rebooted since the owner recorded its process id.
    host_went_down: bool = False
    #: The number of the last attempt; 0: none had begun.
    attempt: int = 0
    #: The last known state of the job in words: `attempt 2, ranks 0 to 2 up, rank 3 failed`.
    last_known: str = ""
    #: The last events of the journal: (time, event in words).
    history: tuple[tuple[float, str], ...] = ()
    #: Whether an owner of the job has ever run. A job in this machine's queue has none before its turn.
    begun: bool = True
    #: The path of the lock file that the owner held.
    lock: str = ""
    #: Processes in the job's control groups that outlived the owner and were then killed.
    killed: tuple[LostProcess, ...] = ()
    #: Processes of the job that are still alive.
    left: tuple[LostProcess, ...] = ()
    #: Why the owner requested another run from the platform, if it ended because of that; else empty.
    queued: str = ""
    #: Who removed the job from the platform's queue, and why; empty if unknown.
    dropped: str = ""
    #: Local time minus UTC in seconds, on the machine that found the owner dead.
    utc_offset_s: float = 0.0

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, whatever the time.

        As the `Zone` of `human_format.clock`, this method gives all times in the report one zone.
        """
        return self.utc_offset_s
