"""Pre-checks as data: the chosen checks, their results, and the actions that they request.

The interface for authors of checks (`PreCheckOperator`, `PreCheckResult`) is in `model/check_interface.py`. This module
has the data for messages, for the journal and for `decide/gate.py`.
"""

from __future__ import annotations

import enum
from typing import Any

from holdfast.model.faults import DeviceStanding
from holdfast.model.noun_base import Noun


class CheckChoice(Noun, frozen=True, kw_only=True):
    """A check that a job selects, with its parameters."""

    name: str
    params: dict[str, Any] = {}


class CheckState(enum.StrEnum):
    """The state of a round of checks (DLRover's names). Workers start only if the state is DISABLED or PASS."""

    DISABLED = "DISABLED"
    CHECKING = "CHECKING"
    FAIL = "FAIL"
    PASS = "PASS"


class ActionKind(enum.IntEnum):
    """The actions that a failed check can request, the mildest first; code compares them with `<`."""

    #: Print the check's failure, and start the job with a warning.
    NOTE = 0
    RETRY = 1
    #: Start the job without the abnormal nodes.
    AVOID = 2
    #: Leave the abnormal nodes out and ask the platform for others in their place.
    REPLACE = 3
    #: The job must not start anywhere.
    STOP = 4


class FailedAction(Noun, frozen=True, kw_only=True):
    """One action that a failed check requests: an entry of `failed_actions()`, as the check's process sends it."""

    kind: ActionKind
    reason: str = ""
    #: The affected nodes; empty: the result's abnormal nodes.
    nodes: tuple[str, ...] = ()
    #: For RETRY: the number of further tries; 0: as many as the check's own limit allows.
    times: int = 0


class CheckOutcome(enum.StrEnum):
    """The outcome of one run of a check: the machine is good, the machine is bad, or the check could not decide."""

    GOOD = "good"
    BAD = "bad"
    #: The check crashed, exceeded its time limit, or reported that it cannot decide. It never counts as passed.
    INCONCLUSIVE = "inconclusive"


class InconclusivePolicy(enum.StrEnum):
    """How to treat an inconclusive check. `warn`: the job starts with a warning. `fail`: the check counts as failed."""

    WARN = "warn"
    FAIL = "fail"


class Finding(Noun, frozen=True, kw_only=True):
    """The result of one run of one check."""

    check: str
    answer: CheckOutcome
    #: The node on which the check ran.
    node: str = ""
    #: The result code that the check returned; 0 is good.
    result: int = 0
    #: One line that describes the result, with node, number and unit: `node-3: 11.2 of 900 GB free on /data, 50 GB
    #: asked`.
    message: str = ""
    solution: str = ""
    blame: str = "unknown"
    #: The names of the nodes that the check found abnormal.
    nodes: tuple[str, ...] = ()
    actions: tuple[FailedAction, ...] = ()
    #: Measured values by name; each name has its unit as a suffix.
    figures: dict[str, Any] = {}
    took_s: float = 0.0
    #: The devices that the check found abnormal.
    devices: tuple[str, ...] = ()
    #: The class of the exit, if the check knows how each worker would fail; empty: CheckFailed.
    phrase: str = ""


class CheckLine(Noun, frozen=True, kw_only=True):
    """The state of one check in a round of checks, for the journal and the report."""

    name: str
    #: The state of the check: waiting, running, paused until the next try, passed, passed with a warning, failed, or
    #: not run.
    state: str
    #: The message of the check's last result, for the user.
    message: str = ""
    tries: int = 0
    #: Seconds that the last run of the check took.
    took_s: float = 0.0


#: The result of a round of checks has each check's state on at most this many nodes.
MOST_NODES = 64


class ChecksTaken(Noun, frozen=True, kw_only=True):
    """The result of an attempt's last round of pre-checks: its state, and each check in the order of the job."""

    state: CheckState
    #: Whether the results of the previous round were used again. That round had passed shortly before, and nothing has
    #: raised doubts about the machine since.
    reused: bool = False
    checks: tuple[CheckLine, ...] = ()
    #: In a job of several nodes: node → the states of its checks, for at most `MOST_NODES` nodes, failed ones first.
    by_node: dict[str, tuple[CheckLine, ...]] = {}

    def where(self, host: str) -> dict[str, tuple[CheckLine, ...]]:
        """Return node → the states of its checks. `host`: the node's name, if the checks ran on one node."""
        return self.by_node or {host: self.checks}


class ParamInfo(Noun, frozen=True, kw_only=True):
    """One parameter of a check, as `holdfast check --list` shows it."""

    name: str
    type: str
    default: Any = None
    about: str = ""


class CheckInfo(Noun, frozen=True, kw_only=True):
    """One check that a job can select, as `holdfast check --list` shows it."""

    name: str
    #: The question about the machine that the check answers, as text.
    question: str
    #: The approximate duration of the check: `2 ms`, `1 s with two processes`.
    cost: str = "unknown"
    #: The origin of the check: built-in, entry point, plugin file or executable, with its path or package.
    source: str = "built-in"
    by_default: bool = False
    #: Whether the check puts load on the machine or the network. It then runs alone, after the cheap checks.
    needs_gang: bool = False
    during_job: bool = False
    #: Seconds between two runs of the check during a job; 0: it only runs before a job.
    interval_s: float = 0.0
    #: The default limit in seconds for the check with all its retries.
    limit_s: float = 0.0
    params: tuple[ParamInfo, ...] = ()
    #: Whether the check accepts any parameter, as an executable or a check with `**kwargs` does.
    open_params: bool = False


class Site(Noun, frozen=True, kw_only=True):
    """The machine and the job of a check. Checks get it as the keyword argument `site`, in addition to DLRover's
    arguments.
    """

    #: The machine's name in the job.
    node: str
    cwd: str = "."
    #: The path of holdfast's state directory.
    home: str = ""
    #: The number of workers that the job runs on this node.
    workers: int = 1
    #: The rendezvous port of the first attempt's workers, if the user chose one; else None. Later attempts use any free
    #: port.
    port: int | None = None
    #: Whether the workers are running. The check is then a periodic run, on cores that no worker uses.
    running: bool = False
    #: Devices of this node that holdfast has recorded as faulty. None: the check reads the record itself. // If its
    #: parent has the journal open, the check's process cannot read the record: in a fork, SQLite would wait for locks
    #: that the fork seems to hold. The parent then reads it.
    kept_out: tuple[DeviceStanding, ...] | None = None
