"""Pre-checks as data: which were chosen, what one of them found, and what it asks for.

The interface that a check is written against (`PreCheckOperator`, `PreCheckResult`) is in `model/precheck.py`; what
crosses process borders, stands in the journal or is judged by the gate is here.
"""

from __future__ import annotations

import enum
from typing import Any

from holdfast.model.base import Noun
from holdfast.model.faults import DeviceStanding


class CheckChoice(Noun, frozen=True, kw_only=True):
    """One check of a job, by name, with the parameters it was given."""

    name: str
    params: dict[str, Any] = {}


class CheckState(enum.StrEnum):
    """A round's state for those that wait (DLRover's names). Workers start only on DISABLED or PASS."""

    DISABLED = "DISABLED"
    CHECKING = "CHECKING"
    FAIL = "FAIL"
    PASS = "PASS"


class ActionKind(enum.IntEnum):
    """What a failed check asks for, from mild to hard; compared with `<`."""

    NOTE = 0
    """Say it and go on: the job starts with a warning."""
    RETRY = 1
    AVOID = 2
    """Leave the abnormal nodes out."""
    REPLACE = 3
    """Leave them out and ask the platform for others in their place."""
    STOP = 4
    """The job must not start anywhere."""


class FailedAction(Noun, frozen=True, kw_only=True):
    """One entry of `failed_actions()`, as it crosses from the check's process to the gate."""

    kind: ActionKind
    reason: str = ""
    nodes: tuple[str, ...] = ()
    """Empty: the result's abnormal nodes."""
    times: int = 0
    """RETRY: how many more tries; 0 leaves it to the check's own limit."""


class Answer(enum.StrEnum):
    """How one run of a check ended."""

    GOOD = "good"
    BAD = "bad"
    INCONCLUSIVE = "inconclusive"
    """It crashed, was out of time, or said itself that it cannot tell: never a silent pass."""


class InconclusivePolicy(enum.StrEnum):
    """What an inconclusive check means for the job: started with a warning, or treated as failed."""

    WARN = "warn"
    FAIL = "fail"


class Finding(Noun, frozen=True, kw_only=True):
    """What one run of one check said."""

    check: str
    answer: Answer
    node: str = ""
    """Where it ran."""
    result: int = 0
    """The check's own number; 0 is good."""
    message: str = ""
    """One line: node, number and unit. `node-3: 11.2 of 900 GB free on /data, 50 GB asked`."""
    solution: str = ""
    blame: str = "unknown"
    nodes: tuple[str, ...] = ()
    """The abnormal nodes."""
    actions: tuple[FailedAction, ...] = ()
    figures: dict[str, Any] = {}
    """What it measured, by name with unit suffix."""
    took_s: float = 0.0
    devices: tuple[str, ...] = ()
    """Abnormal devices, where the check can tell one from the node."""


class CheckLine(Noun, frozen=True, kw_only=True):
    """Where one check of a round stands, for readers of the journal and the report."""

    name: str
    state: str
    """waiting, running, paused until the next try, passed, passed with a warning, failed, not run."""
    message: str = ""
    """What its last answer said."""
    tries: int = 0
    took_s: float = 0.0
    """Seconds of its last run."""


MOST_NODES = 64
"""Whose lines a round keeps apart."""


class ChecksTaken(Noun, frozen=True, kw_only=True):
    """An attempt's last round of pre-checks: its state, and each check in the order of the job."""

    state: CheckState
    reused: bool = False
    """No check ran: those of a moment ago had passed, and nothing blames the machine since."""
    checks: tuple[CheckLine, ...] = ()
    by_node: dict[str, tuple[CheckLine, ...]] = {}
    """Of a round over several nodes each node's own, at most `MOST_NODES`: those that failed first."""

    def where(self, host: str) -> dict[str, tuple[CheckLine, ...]]:
        """Each node's own lines; a round of one node ran on `host`."""
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
    question: str
    """What it asks of the machine, as one question."""
    cost: str = "unknown"
    """About how long it takes: `2 ms`, `1 s with two processes`."""
    source: str = "built-in"
    """built-in, entry point, plugin file or executable, with its place."""
    by_default: bool = False
    needs_gang: bool = False
    """It loads the machine or the network: run alone, after the cheap ones."""
    during_job: bool = False
    interval_s: float = 0.0
    """How often it runs during a job, where it may."""
    limit_s: float = 0.0
    """The time limit with all its retries, unless one is given."""
    params: tuple[ParamInfo, ...] = ()
    open_params: bool = False
    """It takes any parameter (a check written with `**kwargs`, an executable)."""


class Site(Noun, frozen=True, kw_only=True):
    """Where a check runs: given to it as the keyword `site`, beside the context that DLRover's interface has."""

    node: str
    """This machine's name in the job."""
    cwd: str = "."
    home: str = ""
    """Holdfast's state directory."""
    workers: int = 1
    """Workers of the job on this node."""
    port: int | None = None
    """Where the first attempt will meet, if the user chose that; later ones take any free port."""
    running: bool = False
    """The job runs: this is a look from time to time, off the workers' cores."""
    kept_out: tuple[DeviceStanding, ...] | None = None
    """What holdfast remembers against devices of this node; None: not read yet, the check that asks for it reads it.

    A process that has the journal open must read it itself: SQLite in a fork of such a process waits for locks that the
    fork believes to hold."""
