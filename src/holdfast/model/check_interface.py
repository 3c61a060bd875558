"""The interface for authors of checks: DLRover's pre-check operator, its result, and the actions after a failure.

A class written for DLRover's `PreCheckOperator` runs in holdfast once it imports from `holdfast.checks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.check_results import ActionKind

_KINDS_OF_NODE = frozenset({"worker", "chief", "ps", "master", "evaluator", "node", "dlrover-master"})


class Node:
    """A machine of the job: `Node("node-3")`, `Node(name="node-3")`, or DLRover's `Node("worker", 3)`.

    Each further keyword argument becomes an attribute for the check to read.
    """

    def __init__(
        self,
        node_type: str = "worker",
        node_id: int | None = None,
        config_resource: Any = None,
        name: str | None = None,
        **more: Any,
    ) -> None:
        if node_id is None and name is None and node_type not in _KINDS_OF_NODE:
            node_type, name = "worker", node_type
        self.type = node_type
        self.id = 0 if node_id is None else node_id
        self.rank_index: int = self.id
        self.config_resource = config_resource
        self.name: str = name or f"{node_type}-{self.id}"
        self.named = name is not None
        for key, value in more.items():
            setattr(self, key, value)

    def __repr__(self) -> str:
        return f"Node({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class DiagnosisAction:
    """The action that a failed check requests. `nodes`: the affected nodes; empty: the result's abnormal nodes."""

    #: The kind of the action; None: the action has no effect, and the check counts as failed.
    kind: ActionKind | None = None

    def __init__(self, reason: str = "", nodes: Sequence[Node | str] = (), **more: Any) -> None:
        self.reason = reason or str(more.get("msg") or more.get("event_msg") or "")
        self.nodes = tuple(nodes)
        self.times = int(more.get("times") or 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason!r})"


class Note(DiagnosisAction):
    """Only print the check's failure: the job starts with a warning."""

    kind = ActionKind.NOTE


class Retry(DiagnosisAction):
    """Run the check again after the retry interval, at most `times` more times.

    `times` 0: the check's own limit applies.
    """

    kind = ActionKind.RETRY

    def __init__(self, times: int = 0, reason: str = "", **more: Any) -> None:
        super().__init__(reason, times=times, **more)


class AvoidNode(DiagnosisAction):
    """Start the job without the abnormal nodes."""

    kind = ActionKind.AVOID


class ReplaceNode(DiagnosisAction):
    """Leave the abnormal nodes out and ask the platform for others in their place."""

    kind = ActionKind.REPLACE


class StopJob(DiagnosisAction):
    """Stop the job. It may run on no node until a person has examined the problem."""

    kind = ActionKind.STOP


class NoAction(DiagnosisAction):
    """DLRover's name for "no action". The check still counts as failed."""


class EventAction(DiagnosisAction):
    """DLRover's message to users. The check still counts as failed."""

    def __init__(
        self,
        event_type: str = "",
        event_instance: str = "",
        event_action: str = "",
        event_msg: str = "",
        event_labels: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        words = (event_type, event_instance, event_action, event_msg)
        super().__init__(" ".join(str(word) for word in words if word), **more)
        self.event_labels = dict(event_labels or {})


class NodeAction(ReplaceNode):
    """DLRover's action on one node: `action_type` decides whether its workers restart on this node or on another one.

    `restart_worker`: try again on this node. Any other value, or none: leave the node out and ask the platform for
    another one.
    """

    def __init__(
        self,
        node_id: int = -1,
        node_status: str = "",
        reason: str = "",
        expired_time_period: float = 0.0,
        node_type: str = "worker",
        instance: int = -1,
        action_type: str = "",
        **more: Any,
    ) -> None:
        nodes = more.pop("nodes", ())
        super().__init__(reason, nodes or ((Node(node_type, node_id),) if node_id >= 0 else ()), **more)
        self.node_status = node_status
        self.action_type = str(getattr(action_type, "value", action_type))
        if self.action_type.lower().replace("-", "_") in ("restart_worker", "restart"):
            self.kind = ActionKind.RETRY


class JobAbortionAction(StopJob):
    """DLRover's action that ends the job."""

    def __init__(self, reason: str = "", msg: str = "", **more: Any) -> None:
        super().__init__(": ".join(word for word in (reason, msg) if word), **more)


@dataclass
class PreCheckResult:
    """The result of a check. The number 0 means good; each check defines other numbers.

    A subclass may override `is_success` for other rules.
    """

    result: int = 0
    result_msg: str = ""
    #: The nodes that the check found abnormal: `Node` objects, names, or indices into the nodes of the job.
    abnormal_nodes: list[Any] = field(default_factory=list)

    def is_success(self) -> bool:
        return self.result == 0


@dataclass
class Verdict(PreCheckResult):
    """The result of a check, with advice, blame and measured values.

    `blame`: one of workload, hardware, network, storage, platform, external, unknown. `figures`: measured values by
    name, each with its unit as a suffix. `devices`: the abnormal devices. `phrase`: the class of the job's exit
    (`ModuleNotFound`), if the check knows how each worker would fail; otherwise the job ends with CheckFailed.
    """

    solution: str = ""
    blame: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    #: Whether the check could not decide between a good and a bad machine.
    inconclusive: bool = False
    phrase: str = ""


class PreCheckOperator(ABC):
    """One check. It runs in a separate process with a time limit, and is killed with its children when the limit ends.

    `check` and `failed_actions` are called with these keyword arguments: `job` (a `JobSpec`, or None for `holdfast
    check`),
    `nodes` (a list of `Node`), `attempt` (from 1) and `now` (seconds since the epoch); a method that declares only some
    of them gets only those. Class attributes that may be set: `blame`, `solution`, `question`, `cost`, `independent`
    (whether it may run beside other checks).
    """

    question = ""
    cost = "unknown"
    blame = "unknown"
    solution = ""
    independent = False
    #: Whether an inconclusive result only warns (`warn`) or counts as a failure (`fail`); None: the job's policy
    #: decides.
    inconclusive: str | None = None

    @classmethod
    def get_retry_interval_secs(cls) -> float:
        """Return the seconds between a failed run of the check and its retry."""
        return 5

    @classmethod
    def get_retry_limit_times(cls) -> int:
        """Return the maximum number of retries of a failed check."""
        return 3

    @classmethod
    def get_time_limit_secs(cls) -> float:
        """Return the time limit in seconds for the check with all its retries; `--check-timeout` overrides it."""
        return 60

    @classmethod
    def get_running_interval_secs(cls) -> float:
        """Return the seconds between two runs of the check during a job; 0: the check only runs before a job."""
        return 0

    @abstractmethod
    def check(self, *args: Any, **kwargs: Any) -> PreCheckResult:
        """Run the check, and return its result."""

    @abstractmethod
    def failed_actions(self, *args: Any, **kwargs: Any) -> Sequence[DiagnosisAction]:
        """Return the actions to take after a failure, the mildest first; an empty list: the job does not start.

        The method also gets the keyword argument `result`.
        """
