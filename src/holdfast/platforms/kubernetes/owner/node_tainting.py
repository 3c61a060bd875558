"""Taint a node that a person must check, if the job's user allows it. A tainted node gets no new pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model import events as ev
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble, Method
from holdfast.platforms.kubernetes.objects.node_taints import by_hand, hold_patch
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper

if TYPE_CHECKING:
    from holdfast.reactor import News

LIMIT_S = 5.0
#: How often to try to taint a node. A try fails if another client changes the node at the same time.
TRIES = 3


class NodeTainting:
    """Taints nodes for one job, and each node only once."""

    def __init__(self, asking: ApiHelper, job: str, namespace: str, say: Callable[[str], None]) -> None:
        """`asking`: sends requests to the API server. `job`, `namespace`: name and namespace of the job, for the taint.

        `say`: prints a message of the owner.
        """
        self._asking = asking
        self._job = job
        self._namespace = namespace
        self._say = say
        self._asked: set[str] = set()
        self._open = 0

    @property
    def busy(self) -> bool:
        """Whether a request to the API server is pending."""
        return self._open > 0

    def hold(self, node: str, reason: str, attempt: int, of: str) -> None:
        """Taint the Kubernetes node `node`. The result becomes evidence of the attempt.

        `reason`: why the node must not be used. `of`: the gang's name for the node.
        """
        if not node or node in self._asked:
            return
        self._asked.add(node)
        self._open += 1
        self._try(node, reason, attempt, of, TRIES)

    def _try(self, node: str, reason: str, attempt: int, of: str, tries: int) -> None:
        """Read the node and patch its taints.

        Try at most `tries` times, because another client may change the node meanwhile.
        """
        path = f"/api/v1/nodes/{node}"

        def told(words: str) -> News:
            self._open -= 1
            self._say(words)
            command = f"kubectl describe node {node}"
            return [ev.PlatformSaid(attempt=attempt, subject=f"node {node}", words=words, command=command, node=of)]

        def failed(answer: Answered) -> News:
            said = answer.said
            if answer.trouble is ApiTrouble.REFUSED:
                said = "the owner's service account may not change nodes (a ClusterRole has to allow it)"
            command = by_hand(node, self._job)
            return told(f"node {node} is not tainted: {said}; an administrator types: {command}")

        def seen(answer: Answered, now: float) -> News:
            if not answer.ok:
                return failed(answer)
            because = f"{reason} (job {self._job} in namespace {self._namespace})"
            body = hold_patch(answer.body, self._job, because)
            if body is None:
                return told(f"node {node} is tainted already")
            self._asking.ask(Method.PATCH, path, tried, body=body, limit_s=LIMIT_S)
            return None

        def tried(answer: Answered, now: float) -> News:
            if answer.trouble is ApiTrouble.CONFLICT and tries > 1:
                self._try(node, reason, attempt, of, tries - 1)
                return None
            if not answer.ok:
                return failed(answer)
            free = f"holdfast release {node} --platform kubernetes --reason TEXT"
            return told(f"node {node} is tainted: {reason}; once it is repaired: {free}")

        self._asking.ask(Method.GET, path, seen, limit_s=LIMIT_S)
