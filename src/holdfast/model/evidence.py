"""All evidence of one attempt's end, collected before it is judged.

`holdfast.explain.explain` makes the one `ExitReport` from an `AttemptEvidence`. A live run fills in what it observed.
`holdfast explain FILE…` only has logs (one `WorkerEvidence` per file) and perhaps an exit status.
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

#: If a worker died of a signal, and holdfast got the same signal within this many seconds, both count as sent by one
#: sender.
SAME_SIGNAL_S = 1.0


class LogExcerpt(Noun, frozen=True, kw_only=True):
    """The kept parts of one log stream: its end, and cut-outs of earlier parts around lines that matched a pattern."""

    #: The origin of the log: `worker-1 stderr`, or a file's name.
    source: str
    #: The kept end of the stream as text. Each invalid byte is replaced by U+FFFD.
    text: str = ""
    #: The number of bytes of the stream before `text`.
    skipped_bytes: int = 0
    #: Cut-outs of the skipped part, in the order of the stream. Each has a matched line and the lines around it.
    cuttings: tuple[str, ...] = ()
    #: How many of the first cut-outs report trouble that the program survived, because its output shows work after
    #: them.
    settled: int = 0
    #: The line number of `text`'s first line in the stream.
    first_line: int = 1
    #: The number in the stream of each cut-out's first line; empty: not known.
    cutting_lines: tuple[int, ...] = ()
    #: When the stream was last written, in seconds since the epoch. It supplies the year for times in the log without a
    #: year.
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
    #: New nodes have joined, and the job is configured to use new nodes at once.
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
    """A request of a person or a component to stop the job or the attempt, with a reason. Every request to stop is of
    this struct.

    `phrase` is the catalogue's phrase for the report: StoppedByOperator, TimeLimitReached, KilledByDiskCleaner …
    """

    reason: str
    solution: str = ""
    source: StopSource = StopSource.OPERATOR
    #: The name of the file in which a component requests the stop.
    component: str = ""
    phrase: str = Phrase.STOPPED_BY_OPERATOR
    #: The exit code that the requesting component chose; None: use the code of the phrase's row in the catalogue.
    code: int | None = None
    at: At | None = None
    #: The user and process that made the request; empty: not known.
    who: str = ""
    #: The number of the signal that holdfast received as the request; None: the request was no signal.
    signal: int | None = None
    #: Seconds that workers have to exit after the first signal; None: the job's own setting. A second Ctrl-C requests 0
    #: seconds.
    grace_s: float | None = None
    #: Whether every process of the job already got the signal, so that holdfast must not send it to the workers again.
    everywhere: bool = False
    #: Seconds to wait before the first signal. Meanwhile holdfast may learn that every process already got one.
    hold_s: float = 0.0
    #: Seconds for workers that asked for a notice to save before any signal is sent.
    save_s: float = 0.0
    #: Seconds until the platform kills all processes. Holdfast kills them by then, even if other fields allow more
    #: time. None: the platform has announced no such time.
    within_s: float | None = None
    #: Whether the request ends the job; False: it only ends this attempt, and the restart policy decides what follows.
    final: bool = True
    #: Whether the request ends only this run of the job. If the platform starts the job again, the job continues in the
    #: new run.
    requeue: bool = False


class MemoryKill(Noun, frozen=True, kw_only=True):
    """A kill by the kernel's OOM killer, of the host or of a control group. Other kills by SIGKILL have no
    such struct.
    """

    #: The origin of the information: `cgroup v2 memory.events`, `cgroup v1 memory.oom_control`, `kernel log`.
    source: str
    #: The line of the kernel log, or the counter, that shows the kill.
    text: str
    #: The node on which the process was killed; pids of two nodes may be equal. Empty: the job has one node.
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
    #: Who set the memory limit, if it applies to a group around holdfast: `Slurm's step 12.0 (sbatch --mem)`.
    limited_by: str = ""
    #: For a control group with several ranks, the number of kills that its counter shows; 0: one known process was
    #: killed.
    count: int = 0


class ThreadState(Noun, frozen=True, kw_only=True):
    """One thread of a rank, in the evidence of a hang: its kernel state, what it waits for, and its Python frames if it
    has any.
    """

    tid: int
    name: str = ""
    #: The letter of the thread's state in /proc/PID/stat: R, S, D, T, t, Z.
    state: str = ""
    #: The kernel's wait channel or the system call in which the thread waits, if the kernel shows it.
    waits_in: str = ""
    #: The frames of the thread's stack, innermost first: `function (file:line)`; a native frame is `function
    #: (libtorch_cpu.so)`.
    frames: tuple[str, ...] = ()
    #: The id of the thread's process, if that is a child or further descendant of the rank's process. 0: not known.
    pid: int = 0
    #: CPU seconds that this thread has used so far.
    cpu_s: float = 0.0
    #: How often the running thread gave up its CPU by itself. This count and `faults` (page faults without a read) stay
    #: near zero in a thread that only computes in place.
    switches: int = 0
    faults: int = 0
    #: The file that the thread's system call uses, as descriptor and path: `0 pipe:[8123]`, `7 /data/shard.bin`.
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
    #: Bytes that the rank's process tree has read and written so far through files and pipes. A silent download
    #: increases it.
    io_bytes: int = 0
    last_output_at: At | None = None
    #: Whether the rank has printed after `last_output_at`, but only repetitions of earlier lines.
    repeats: bool = False
    last_step: int | None = None
    last_step_at: At | None = None
    #: The tool that read the stacks, `py-spy` or `faulthandler`, or why there are none: `the process is stopped and
    #: cannot dump`.
    stack_source: str = ""

    @property
    def left_program(self) -> bool | None:
        """Whether the main thread has left the user's program: no frame of its stack is a module's. None: its whole
        stack is not known.

        If py-spy sees no frame at all, the interpreter is ending: it runs an exit handler written in C.
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
    #: The ranks to blame: the one whose state differs from the others'. Several ranks: the snapshots cannot decide
    #: between them.
    culprits: tuple[int, ...] = ()
    #: The reason for blaming these ranks, in one sentence: `rank 2 is stopped (state T) while ranks 0, 1, 3 wait in
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
    #: Whether the check failed while the workers ran, not before they started.
    running: bool = False
    #: The devices that the check found bad, if it names any.
    devices: tuple[str, ...] = ()
    #: Whether the job may work on other nodes or devices, so that the bad ones must be left out.
    elsewhere: bool = False
    #: Whether the check wants the job to stop, so that no attempt may start on any node.
    ends_job: bool = False
    #: The phrase of the job's exit if it is not CheckFailed, as when a prerequisite could not be fetched; else empty.
    phrase: str = ""


#: The `subject` of the owner's message about a node that it refused to admit.
TURNED_AWAY = "turned away"


class GangShortfall(Noun, frozen=True, kw_only=True):
    """Too few nodes joined the gang in time: which nodes joined and which are missing."""

    #: The minimum number of nodes that the gang needs.
    least: int
    #: The nodes that joined, in the order of their ranks: `gpu-1 (10.1.2.7)`.
    came: tuple[str, ...] = ()
    #: The nodes that joined and cannot be used.
    unfit: tuple[str, ...] = ()
    #: The missing `--node-rank` numbers, if nodes have such numbers.
    missing_ranks: tuple[int, ...] = ()
    #: The names of the nodes that never joined. Known only if the job's starter knows the nodes by name.
    missing: tuple[str, ...] = ()
    waited_s: float = 0.0
    #: The owner's address, to which nodes connect: HOST:PORT.
    endpoint: str = ""


class LeftBehind(Noun, frozen=True, kw_only=True):
    """A node that was lost, or that lost its workers: it fell silent or left, or its agent restarted or stopped the
    workers.
    """

    node: str
    silent_s: float
    ranks: tuple[int, ...] = ()
    #: The reported reason why the node, or its workers, are lost. Empty: no reason was reported (see also `back` and
    #: `memory_kill`).
    why: str = ""
    #: How long before the silence was noticed the node's last messages came, in seconds; the latest message first.
    words_s: tuple[float, ...] = ()
    #: Whether the node can be used although its workers have ended: its agent has restarted, or has stopped them.
    back: bool = False
    #: Whether the node has left for good, so that it cannot answer any request.
    gone: bool = False
    #: The OOM kill that ended the agent, and with it the workers.
    memory_kill: MemoryKill | None = None


class Leftover(Noun, frozen=True, kw_only=True):
    """A process that an exited worker had left running, and that holdfast had to end."""

    #: The rank that left the process running; None: unknown, because the process does not have a rank's environment
    #: variables.
    rank: int | None = None
    node: str = ""
    pid: int
    command: str
    #: Seconds from the rank's exit to the signal to the process; None: not known.
    after_s: float | None = None
    #: Whether the process had to be killed by SIGKILL; False: it ended after SIGTERM.
    killed: bool = False


class HostFacts(Noun, frozen=True, kw_only=True):
    """Facts about a node that explain why its workers lacked a file, module, port or disk space."""

    #: The path of the Python that ran the workers; empty if the workers' command is not known to run Python.
    python: str = ""
    #: Whether the command of the workers names its Python, so that no option of holdfast can change it.
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
    #: The size of /dev/shm, if a worker reported an error about it: `/dev/shm has a size of 64 MB`.
    shared_memory: tuple[str, ...] = ()
    #: Whether a worker stopped in Python's debugger and waited there.
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
    #: The worker's whole log, if stdout and stderr share a file, as for `holdfast explain FILE`.
    log: LogExcerpt | None = None
    first_output_at: At | None = None
    last_output_at: At | None = None
    last_step: int | None = None
    #: The first step that the worker reported with `holdfast.progress` in this attempt.
    first_step: int | None = None
    #: The last step that the worker reported as saved in this attempt.
    saved_step: int | None = None
    #: Whether the worker was forked from a prewarmed process, which had already imported its modules.
    warm: bool = False
    #: Whether the worker had asked for a notice when it must save and exit.
    listened: bool = False
    #: Why the process could not be started (`exec: No such file or directory: 'trian.py'`); empty: it was started.
    start_failed: str = ""
    #: The last counts (steps, epochs) in the worker's output, one for each name.
    counts: tuple[Count, ...] = ()
    #: The facts that the node read from the worker's log. If this is set, the log excerpts and the texts of `exit` are
    #: left out.
    reading: WorkerReading | None = None


class AttemptEvidence(Noun, frozen=True, kw_only=True):
    """All evidence of a drained attempt. It is pure data, so explaining it twice gives the same report."""

    attempt: int = 1
    workers: tuple[WorkerEvidence, ...] = ()
    #: The first request to stop this attempt; None: there was none, or it came after the gang itself had failed.
    stop: StopRequest | None = None
    faults: tuple[ActiveFault, ...] = ()
    memory_kills: tuple[MemoryKill, ...] = ()
    #: Lines of the kernel log from the time of the attempt.
    kernel: tuple[Evidence, ...] = ()
    lost: tuple[LeftBehind, ...] = ()
    #: The name of the owner's own node, if all other nodes fell silent at once, so that the owner's link has failed;
    #: else empty.
    cut_off: str = ""
    hang: HangEvidence | None = None
    check: CheckFailure | None = None
    #: The phase in which the attempt failed: CHECKING, PREPARING, STARTING or RUNNING.
    phase: str = "RUNNING"
    #: The deadline that the attempt missed.
    deadline: Deadline = Deadline.NONE
    #: The ranks that were not ready at the missed deadline.
    late: tuple[int, ...] = ()
    #: A clause for each of the first few late ranks, with role, index, rank, node, and last known state.
    late_words: tuple[str, ...] = ()
    #: The nodes that had joined by the deadline for joining; None: the attempt did not miss this deadline.
    muster: GangShortfall | None = None
    #: What the container engine recorded about the end of the job's container, in one line.
    container: str = ""
    #: Lines of `*.pai.error` files; `source` is the file's name without its suffix.
    pai_errors: tuple[Evidence, ...] = ()
    #: The collectives that the ranks called in this attempt, from PyTorch's flight recorder.
    flights: tuple[FlightDump, ...] = ()
    #: How the workers' rendezvous store ended, if it ended before the attempt's end; else empty.
    store: str = ""
    job: str = ""
    #: The rendezvous address of the workers, MASTER_ADDR:MASTER_PORT; empty if no worker was started.
    meeting: str = ""
    #: When the gang was asked to stop. Exits after this time are collateral.
    stop_asked_at: At | None = None
    #: Seconds between SIGTERM and SIGKILL when the gang was stopped at `stop_asked_at`.
    grace_s: float | None = None
    #: Local time minus UTC on the machine that started the job, in seconds. Reports show times in this zone.
    utc_offset_s: float = 0.0
    #: The signals that holdfast received during the attempt and passed on to the workers.
    passed_on: tuple[int, ...] = ()
    progressed: bool = False
    #: Console's name → bytes of output that the console did not get, because its reader had stopped reading.
    dropped_bytes: dict[str, int] = {}
    #: Checkpoint files that workers completed in this attempt.
    checkpoints: tuple[str, ...] = ()
    surroundings: HostFacts | None = None
    #: Node → the address at which its peers reach it; empty if the job has one node.
    addresses: dict[str, str] = {}
    #: The platform's answers about lost nodes and the job; `source` is the command that shows the same answer.
    platform: tuple[Evidence, ...] = ()
    #: The failures of hooks and required daemons that make the attempt count as failed.
    beside: tuple[SideFailure, ...] = ()
    #: Processes that exited workers had left running, and that holdfast ended.
    leftovers: tuple[Leftover, ...] = ()
    #: The nodes that sent no evidence within `silent_s`. Only the exits of their ranks are known.
    unanswered: tuple[LeftBehind, ...] = ()

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, whatever the time is.

        The report passes this method to `human_format.clock` as its `Zone`, so that all times in the report have one
        zone.
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
    #: When the owner died: reported by the process that reaped it, else the owner's last sign of life.
    died_at: float
    #: The signal that ended the owner, if the process that reaped it reported it; else None.
    signal: int | None = None
    #: The OOM kill in the owner's control group since the owner was last alive. It explains the signal.
    memory_kill: MemoryKill | None = None
    #: Whether the machine was rebooted after the owner recorded its process id.
    host_went_down: bool = False
    #: The number of the last attempt; 0: none had begun.
    attempt: int = 0
    #: The last known state of the job in words: `attempt 2, ranks 0 to 2 up, rank 3 failed`.
    last_known: str = ""
    #: The last events of the journal: (time, event in words).
    history: tuple[tuple[float, str], ...] = ()
    #: The path of the lock file that the owner held.
    lock: str = ""
    #: Processes in the job's control groups that outlived the owner and have been killed since its death.
    killed: tuple[LostProcess, ...] = ()
    #: Processes of the job that are still alive.
    left: tuple[LostProcess, ...] = ()
    #: Why the owner asked the platform to start the job again, if the owner ended because of that; else empty.
    queued: str = ""
    #: Who removed the job from the platform's queue, and why; empty if unknown.
    dropped: str = ""
    #: Local time minus UTC in seconds, on the machine that found the owner dead.
    utc_offset_s: float = 0.0

    def zone(self, _: float) -> float:
        """Return `utc_offset_s`, whatever the time is.

        The report passes this method to `human_format.clock` as its `Zone`, so that all times in the report have one
        zone.
        """
        return self.utc_offset_s
