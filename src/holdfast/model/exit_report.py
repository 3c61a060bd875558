"""What the operating system reported about a worker's end, and what it means."""

from __future__ import annotations

import enum
import functools
import signal as _signal

from holdfast.model.noun_base import At, Noun


class Blame(enum.StrEnum):
    """Who has to act: the failure's owner."""

    WORKLOAD = "workload"
    HARDWARE = "hardware"
    NETWORK = "network"
    STORAGE = "storage"
    PLATFORM = "platform"
    EXTERNAL = "external"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


class Rerun(enum.StrEnum):
    """Whether another try helps: at once, after a back-off, on other hardware, not at all, or unknown."""

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
    """Which kind of evidence decided (the seed's field names)."""

    EXIT_CODE = "originalUserExitCode"
    SIGNAL = "caughtSignal"
    EXCEPTION = "caughtException"
    LOG = "matchedUserLogString"
    RUNTIME = "runtimeErrorLog"
    DISK_CLEANER = "diskCleanerErrorLog"
    REQUEST = "stopRequest"
    FAULT = "deviceFault"
    KERNEL = "kernelLog"
    CHECK = "preCheck"
    HANG = "hangDetector"


@functools.cache  # a gang of thousands ends with a handful of them
def signal_name(number: int) -> str:
    """`9` → `SIGKILL`; a number without a name → `signal 42`."""
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


#: Bytes of a failed worker's last lines that travel to the owner with its exit: they are all that is known if its node
#: is lost.
TRAVELLING_BYTES = 2048


class WorkerExit(Noun, frozen=True, kw_only=True):
    """One process's end as the operating system reported it; nothing is judged here.

    Exactly one of `exit_code` and `signal` is set, or neither when the process vanished (its status was not available).
    Times are seconds since the epoch, on the clock of the process that holds this. `order` rises with the order in
    which one kernel announced the deaths of an attempt: it orders two deaths with equal times.
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
    #: A stop had been requested when it died: collateral, even where its log accuses a peer.
    after_stop: bool = False
    #: The kernel announced its death before any stop was requested, though its end was reported later: it was not
    #: holdfast's stop.
    was_dying: bool = False
    #: The end of its stderr (of stdout where stderr is empty), decoded: at most 8 KiB on its node.
    #:
    #: An agent's report and the journal keep `TRAVELLING_BYTES` of it, and none for exit status 0.
    last_words: str = ""
    #: The stream of `last_words`: `stderr` or `stdout`; empty where it is not known.
    last_words_stream: str = ""
    #: The content of its TORCHELASTIC_ERROR_FILE, at most 64 KiB: read on its node, and kept only there.
    error_file: str = ""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def ended_by(self) -> int | None:
        """The signal that ended it, or that its status stands for: handlers of SIGTERM and shells exit with 128 + N."""
        if self.signal is None and self.exit_code is not None and 128 < self.exit_code < 160:
            return self.exit_code - 128
        return self.signal

    @property
    def how(self) -> str:
        """`exit status 3`, `SIGKILL`, or `no exit status`."""
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
        """A kind of another version is kept as text."""
        return cls.LOG


class Evidence(Noun, frozen=True, kw_only=True):
    """One line, code, fault or request that supports a report."""

    kind: EvidenceKind
    text: str
    #: Its source: `worker-1 stderr`, `kernel log`, `cgroup`, a file name.
    source: str = ""
    at: At | None = None
    #: The machine on which it was seen; empty where it is about all of them.
    node: str = ""


class Original(Noun, frozen=True, kw_only=True):
    """The culprit's own exit, kept beside the final code so that the two are never confused."""

    exit_code: int | None = None
    #: The signal's name: `SIGKILL`.
    signal: str | None = None

    @property
    def how(self) -> str:
        """`SIGKILL`, or `exit status 3`; empty where it has neither."""
        return self.signal or (f"exit status {self.exit_code}" if self.exit_code is not None else "")


class Culprit(Noun, frozen=True, kw_only=True):
    """Which worker it was."""

    role: str
    rank: int
    node: str
    pid: int | None = None
    #: On the owner's clock, in seconds since the epoch.
    at: float | None = None
    #: Where peers reach the node; empty where there is one node.
    address: str = ""


class OtherRule(enum.StrEnum):
    """The rules of reports that no function in `holdfast.explain.explanation_rules` makes by itself."""

    EXIT_STATUS = "exit_status"
    OWNER_DIED = "owner_died"
    OWNER_SILENT = "owner_silent"
    OWNER_ABSENT = "owner_absent"
    BUG = "bug_of_holdfast"


class DecidingLine(Noun, frozen=True, kw_only=True):
    """The line of a log that decided a report, with its secrets masked."""

    text: str
    #: The file, the stream or the kernel log that has the line.
    source: str = ""
    #: The line's number in `source`, from 1; 0 where it is not known.
    number: int = 0


class Because(Noun, frozen=True, kw_only=True):
    """The record of what decided a report: a rule, a row, and often a wording and a line."""

    #: The name of a function in `holdfast.explain.explanation_rules`, or an `OtherRule`. Empty only in reports of
    #: versions before 0.2.
    rule: str = ""
    #: The phrase of the catalogue's row, or the phrase that a user or a component chose.
    row: str = ""
    #: The id of the row's wording that matches `line`; empty where none decided.
    wording: str = ""
    #: None where no single line decided: a status, a check, a hang.
    line: DecidingLine | None = None


class ExitReport(Noun, frozen=True, kw_only=True):
    """The meaning of an attempt's end: one code, one phrase, one reason, one solution."""

    code: int
    phrase: str
    blame: Blame
    rerun: Rerun
    reason: str
    solution: str
    trigger: str | None = None
    #: A command to type next, or a note about a bug of holdfast.
    hint: str | None = None
    original: Original = Original()
    first: Culprit | None = None
    evidence: tuple[Evidence, ...] = ()
    #: Ranks that died because of another rank's death or of holdfast's own stop.
    collateral: tuple[int, ...] = ()
    attempt: int = 1
    #: Phrase, exception type, innermost frame of the user's code, device: equal for equal failures.
    fingerprint: str = ""
    #: The exception's type where there is one; empty otherwise.
    exception: str = ""
    #: Further candidates where two causes stand equal.
    also: tuple[Culprit, ...] = ()
    #: 0 to 1: how sure the attribution is of `first`.
    confidence: float = 1.0
    #: Devices or nodes that the report blames; recovery avoids them.
    devices: tuple[str, ...] = ()
    #: What decided. The default is for reports that an earlier version wrote; every new report names its rule.
    because: Because = Because()
