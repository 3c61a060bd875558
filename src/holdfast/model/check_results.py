"""Pre-checks as data: which ones were chosen, what one of them found, and what it asks for.

The interface for authors of checks (`PreCheckOperator`, `PreCheckResult`) is in `model/check_interface.py`; this module
has what crosses process borders, is written to the journal, or is judged by the gate.
"""

from __future__ import annotations

import enum
from typing import Any

from holdfast.model.faults import DeviceStanding
from holdfast.model.noun_base import Noun


class CheckChoice(Noun, frozen=True, kw_only=True):
    """One check of a job, by name, with its parameters."""

    name: str
    params: dict[str, Any] = {}


class CheckState(enum.StrEnum):
    """A round's state for the nodes that wait (DLRover's names). Workers start only on DISABLED or PASS."""

    DISABLED = "DISABLED"
    CHECKING = "CHECKING"
    FAIL = "FAIL"
    PASS = "PASS"


class ActionKind(enum.IntEnum):
    """What a failed check asks for, from mild to hard; compared with `<`."""

    #: Print it and go on: the job starts with a warning.
    NOTE = 0
    RETRY = 1
    #: Leave the abnormal nodes out.
    AVOID = 2
    #: Leave them out and ask the platform for others in their place.
    REPLACE = 3
    #: The job must not start anywhere.
    STOP = 4


class FailedAction(Noun, frozen=True, kw_only=True):
    """One entry of `failed_actions()`, as it crosses from the check's process to the gate."""

    kind: ActionKind
    reason: str = ""
    #: The nodes that the action is about; empty: the result's abnormal nodes.
    nodes: tuple[str, ...] = ()
    #: For RETRY, the number of further tries; 0: the check's own limit holds.
    times: int = 0


class CheckOutcome(enum.StrEnum):
    """How one run of a check ended."""

    GOOD = "good"
    BAD = "bad"
    #: The check crashed, passed its time limit, or reported itself that it cannot decide: this is never a silent pass.
    INCONCLUSIVE = "inconclusive"


class InconclusivePolicy(enum.StrEnum):
    """What follows an inconclusive check: the job starts with a warning, or the check counts as failed."""

    WARN = "warn"
    FAIL = "fail"


class Finding(Noun, frozen=True, kw_only=True):
    """The result of one run of one check."""

    check: str
    answer: CheckOutcome
    #: The machine on which it ran.
    node: str = ""
    #: The check's own result code; 0 is good.
    result: int = 0
    #: One line: node, number and unit. `node-3: 11.2 of 900 GB free on /data, 50 GB asked`.
    message: str = ""
    solution: str = ""
    blame: str = "unknown"
    #: The abnormal nodes.
    nodes: tuple[str, ...] = ()
    actions: tuple[FailedAction, ...] = ()
    #: Measured values by name; each name has its unit as a suffix.
    figures: dict[str, Any] = {}
    took_s: float = 0.0
    #: Abnormal devices, where the check can name them.
    devices: tuple[str, ...] = ()


class CheckLine(Noun, frozen=True, kw_only=True):
    """The state of one check of a round, for readers of the journal and the report."""

    name: str
    #: waiting, running, paused until the next try, passed, passed with a warning, failed, not run.
    state: str
    #: The sentence of its last result.
    message: str = ""
    tries: int = 0
    #: Seconds of its last run.
    took_s: float = 0.0


#: The node whose lines a round keeps apart.
MOST_NODES = 64


class ChecksTaken(Noun, frozen=True, kw_only=True):
    """An attempt's last round of pre-checks: its state, and each check in the order of the job."""

    state: CheckState
    #: No check ran: the checks passed a moment ago, and nothing has blamed the machine since.
    reused: bool = False
    checks: tuple[CheckLine, ...] = ()
    #: In a round over several nodes, the lines of each node, at most `MOST_NODES`: those that failed first.
    by_node: dict[str, tuple[CheckLine, ...]] = {}

    def where(self, host: str) -> dict[str, tuple[CheckLine, ...]]:
        """The lines by node; a round of one node ran on `host`."""
        return self.by_node or {host: self.checks}


class ParamInfo(Noun, frozen=True, kw_only=True):
    """One parameter of a check, as `holdfast check --list` shows it."""

    name: str
    type: str
    default: Any = None
    about: str = ""


class CheckInfo(Noun, frozen=True, kw_only=True):
    """One check that can be chosen, as `holdfast check --list` shows it."""

    name: str
    #: What it asks about the machine, as one question.
    question: str
    #: About how long it takes: `2 ms`, `1 s with two processes`.
    cost: str = "unknown"
    #: built-in, entry point, plugin file or executable, with its place.
    source: str = "built-in"
    by_default: bool = False
    #: It loads the machine or the network: it runs alone, after the cheap ones.
    needs_gang: bool = False
    during_job: bool = False
    #: Seconds between two runs during a job, where it may run then.
    interval_s: float = 0.0
    #: The time limit in seconds with all its retries, unless one is given.
    limit_s: float = 0.0
    params: tuple[ParamInfo, ...] = ()
    #: It accepts any parameter (a check with `**kwargs`, an executable).
    open_params: bool = False


class Site(Noun, frozen=True, kw_only=True):
    """Where a check runs: its keyword `site`, beside the context of DLRover's interface."""

    #: This machine's name in the job.
    node: str
    cwd: str = "."
    #: Holdfast's state directory.
    home: str = ""
    #: The number of the job's workers on this node.
    workers: int = 1
    #: The port at which the first attempt's workers will meet, if the user chose one; later attempts take any free
    #: port.
    port: int | None = None
    #: The job runs: this is a periodic look, away from the workers' cores.
    running: bool = False
    #: Devices of this node that holdfast remembers as faulty; None: not read yet, and the check that needs it reads it.
    #:
    #: A process that has the journal open must read it itself: SQLite in a fork of such a process waits for locks that
    #: the
    #: fork believes it holds.
    kept_out: tuple[DeviceStanding, ...] | None = None
