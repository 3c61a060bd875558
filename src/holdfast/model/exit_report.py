"""The end of a worker as the operating system reported it, and the report that explains an attempt's end."""

from __future__ import annotations

import enum
import functools
import signal as _signal

from holdfast.model.noun_base import At, Noun


class Blame(enum.StrEnum):
    """Who caused a failure and must act on it."""

    WORKLOAD = "workload"
    HARDWARE = "hardware"
    NETWORK = "network"
    STORAGE = "storage"
    PLATFORM = "platform"
    EXTERNAL = "external"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


class Rerun(enum.StrEnum):
    """Whether and when another attempt can help. NOW: at once. LATER: after a pause. ELSEWHERE: on other hardware.
    NEVER: not at all.
    """

    NOW = "now"
    LATER = "later"
    ELSEWHERE = "elsewhere"
    NEVER = "never"
    UNKNOWN = "unknown"


class Outcome(enum.StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class Trigger(enum.StrEnum):
    """The kind of evidence that decided a report. For a kind that OpenPAI's exit information has too, the value is
    OpenPAI's field name.
    """

    EXIT_CODE = "originalUserExitCode"
    SIGNAL = "caughtSignal"
    EXCEPTION = "caughtException"
    LOG = "matchedUserLogString"
    RUNTIME = "runtimeErrorLog"
    DISK_CLEANER = "diskCleanerErrorLog"
    CONTAINER = "dockerStatus"
    REQUEST = "stopRequest"
    FAULT = "deviceFault"
    KERNEL = "kernelLog"
    CHECK = "preCheck"
    HANG = "hangDetector"


#: The exit code after a stop by a user, or by a component that set no code.
OPERATOR_CODE = 250


@functools.cache  # cached: thousands of exits have only a few different numbers
def signal_name(number: int) -> str:
    """Return a signal's name: `9` → `SIGKILL`; a number without a name → `signal 42`."""
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


#: An agent sends the owner at most this many bytes of a failed worker's last lines. If the node is lost, the owner has
#: no more of the log.
TRAVELLING_BYTES = 2048


class LimitKind(enum.StrEnum):
    """The resource that a process limit is about."""

    CPU = "cpu"
    FILE = "file"
    ADDRESS_SPACE = "address_space"
    DATA = "data"


class ProcessLimit(Noun, frozen=True, kw_only=True):
    """A resource limit of a process (ulimit, setrlimit): in seconds for CPU time, otherwise in bytes."""

    kind: LimitKind
    soft: int
    #: The hard limit; None: unlimited.
    hard: int | None = None
    #: Whether holdfast's process has the same limit. If not, the worker's program or command has set it.
    inherited: bool = False


class WorkerExit(Noun, frozen=True, kw_only=True):
    """The end of one process as the operating system reported it, without any judgement.

    Either `exit_code` or `signal` is set; neither if the exit status was not available. Times are seconds since the
    epoch, on the clock of the process that has this struct. `order` is the number of the death in the order of the
    node's kernel. It decides between deaths at the same time.
    """

    role: str
    rank: int
    node: str
    attempt: int
    pid: int | None = None
    local_rank: int = 0
    exit_code: int | None = None
    signal: int | None = None
    core_dumped: bool = False
    started_at: At | None = None
    ended_at: At | None = None
    order: int = 0
    #: Whether a stop was requested before the worker died. Such an exit is collateral, even if the worker's log blames
    #: a peer.
    after_stop: bool = False
    #: Whether the worker was already dying when the stop was requested. The stop is then not the cause of the exit,
    #: which was reported later.
    was_dying: bool = False
    #: The end of the worker's stderr (of stdout if stderr is empty), decoded; at most 8 KiB. The agent's report and the
    #: journal have only `TRAVELLING_BYTES` of it; nothing if the exit status is 0.
    last_words: str = ""
    #: The stream from which `last_words` came: `stderr` or `stdout`; empty: not known.
    last_words_stream: str = ""
    #: The content of the worker's TORCHELASTIC_ERROR_FILE, at most 64 KiB. The owner does not get it.
    error_file: str = ""
    #: The resource limits of the worker, if it failed.
    limits: tuple[ProcessLimit, ...] = ()
    #: CPU seconds that the worker and its reaped children used.
    cpu_s: float | None = None
    #: Seconds from the exception that ended the program until holdfast ended the process; None: the process ended by
    #: itself.
    unended_s: float | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def ended_by(self) -> int | None:
        """The number of the signal that ended the worker. Exit status 128 + N, which handlers and shells use, counts as
        signal N.
        """
        if self.signal is None and self.exit_code is not None and 128 < self.exit_code < 160:
            return self.exit_code - 128
        return self.signal

    @property
    def how(self) -> str:
        """The exit in words: `exit status 3`, `SIGKILL`, or `no exit status`."""
        if self.signal is not None:
            return signal_name(self.signal)
        if self.exit_code is not None:
            return f"exit status {self.exit_code}"
        return "no exit status"


class EvidenceKind(enum.StrEnum):
    """The kind of a piece of evidence."""

    LOG = "log"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    EXIT_CODE = "exit_code"
    FAULT = "fault"
    KERNEL = "kernel"
    MEMORY = "memory"
    REQUEST = "request"
    HANG = "hang"
    CHECK = "check"
    PLATFORM = "platform"
    COLLATERAL = "collateral"

    @classmethod
    def _missing_(cls, value: object) -> EvidenceKind:
        """Map an unknown kind, from another version, to LOG."""
        return cls.LOG


#: The `source` of evidence about processes that exited workers had left running.
LEFT_RUNNING = "left running"


class Evidence(Noun, frozen=True, kw_only=True):
    """One piece of evidence in a report, such as a log line, a code, a fault or a request."""

    kind: EvidenceKind
    text: str
    #: The origin of the evidence: `worker-1 stderr`, `kernel log`, `cgroup`, a file name.
    source: str = ""
    at: At | None = None
    #: The machine that the evidence is from; empty: all machines.
    node: str = ""


class Original(Noun, frozen=True, kw_only=True):
    """The culprit's exit as the operating system reported it. It is kept beside the report's code, because the two may
    differ.
    """

    exit_code: int | None = None
    #: The name of the signal: `SIGKILL`.
    signal: str | None = None

    @property
    def how(self) -> str:
        """The exit in words: `SIGKILL`, or `exit status 3`; empty if neither is known."""
        return self.signal or (f"exit status {self.exit_code}" if self.exit_code is not None else "")


class Culprit(Noun, frozen=True, kw_only=True):
    """The worker that a report blames."""

    role: str
    rank: int
    node: str
    pid: int | None = None
    #: When the worker ended, on the owner's clock, in seconds since the epoch.
    at: float | None = None
    #: The address at which peers reach the node; empty if the job has one node.
    address: str = ""

    @property
    def words(self) -> str:
        """The rank and its node, such as `rank 3 on gpu-07`."""
        return f"rank {self.rank} on {self.node}" if self.node else f"rank {self.rank}"


class OtherRule(enum.StrEnum):
    """The rule that decided a report, if it is not a function in `holdfast.explain.explanation_rules`."""

    EXIT_STATUS = "exit_status"
    OWNER_DIED = "owner_died"
    OWNER_SILENT = "owner_silent"
    OWNER_ABSENT = "owner_absent"
    BUG = "bug_of_holdfast"
    #: The queue could not start the job's command.
    START_FAILED = "start_failed"


class DecidingLine(Noun, frozen=True, kw_only=True):
    """The log line that decided a report. Secrets in it are masked."""

    text: str
    #: The file, the stream or the kernel log from which the line comes.
    source: str = ""
    #: The line's number in `source`, from 1; 0: not known.
    number: int = 0


class Rival(Noun, frozen=True, kw_only=True):
    """Another cause that the logs show, and what decided against it."""

    #: The phrase of the row in the catalogue.
    row: str
    #: The id of the row's pattern (wording) that matches `line`; empty: none does.
    wording: str = ""
    line: DecidingLine
    #: What decided against it, as a clause: `the program went on after it`.
    against: str


class Because(Noun, frozen=True, kw_only=True):
    """The reasons for a report: the rule, the catalogue's row, and, if a log decided, the matched pattern and the
    line; and the best of the causes that it was decided against.
    """

    #: The name of a function in `holdfast.explain.explanation_rules`, or an `OtherRule`. Empty only in reports of
    #: versions before 0.2.
    rule: str = ""
    #: The phrase of the catalogue's row, or the phrase of a stop by a user or a component.
    row: str = ""
    #: The id of the row's pattern (wording) that matched `line`; empty: no pattern decided.
    wording: str = ""
    #: The line of a log that decided; None: an exit status, a check or a hang decided.
    line: DecidingLine | None = None
    #: At most two other causes, the better one first.
    rivals: tuple[Rival, ...] = ()


class SourceLines(Noun, frozen=True, kw_only=True):
    """The source lines around the place of a failure, as the file had them when the attempt ended. Secrets in them are
    masked.
    """

    #: The file as the traceback or the stack names it, on the culprit's node.
    path: str
    #: The number of the failing line, and the number of the first of `lines`, from 1.
    line: int
    first: int
    lines: tuple[str, ...]

    @property
    def failing(self) -> str:
        """The failing line."""
        at = self.line - self.first
        return self.lines[at] if 0 <= at < len(self.lines) else ""


class ExitReport(Noun, frozen=True, kw_only=True):
    """The explanation of an attempt's end: one code, one phrase, one reason, one solution."""

    code: int
    phrase: str
    blame: Blame
    rerun: Rerun
    reason: str
    solution: str
    trigger: str | None = None
    #: A command that the user can try next, or a note about a bug of holdfast.
    hint: str | None = None
    original: Original = Original()
    first: Culprit | None = None
    evidence: tuple[Evidence, ...] = ()
    #: The ranks that ended only because another rank had ended, or because holdfast stopped them.
    collateral: tuple[int, ...] = ()
    attempt: int = 1
    #: A text of phrase, exception type, innermost frame of the user's code, and device. Equal failures have equal
    #: fingerprints.
    fingerprint: str = ""
    #: The exception's type; empty if there was no exception.
    exception: str = ""
    #: The linked exceptions, if there are several: first the one that left the program, then `because …` or `while
    #: handling …` for each one below it.
    chain: tuple[str, ...] = ()
    #: The ranks with the same failure. None of them alone is then the culprit.
    alike: tuple[int, ...] = ()
    #: Further culprits, if several ranks are equally likely to be the cause.
    also: tuple[Culprit, ...] = ()
    #: How certain it is that `first` is the culprit, from 0 to 1.
    confidence: float = 1.0
    #: The devices or nodes that the report blames, and that the next attempts avoid.
    devices: tuple[str, ...] = ()
    #: The reasons for the report. Only reports of earlier versions have the default.
    because: Because = Because()
    #: The source lines around the place of the failure; None: the place or the file is not known.
    source_lines: SourceLines | None = None

    @property
    def left_running(self) -> tuple[str, ...]:
        """The sentences about processes that exited workers left running and that holdfast ended."""
        return tuple(item.text for item in self.evidence if item.source == LEFT_RUNNING)
