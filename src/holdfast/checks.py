"""The public interface for pre-checks in Python.

    from holdfast.checks import AvoidNode, PreCheckOperator, PreCheckResult

    class Scratch(PreCheckOperator):
        def check(self, *args, **kwargs):
            if not os.access("/scratch", os.W_OK):
                return PreCheckResult(1, "/scratch is not writable", kwargs["nodes"])
            return PreCheckResult()

        def failed_actions(self, *args, **kwargs):
            return [AvoidNode()]

`holdfast run --plugin scratch.py train.py` runs this check before the job, under the name `scratch`.
"""

from __future__ import annotations

from holdfast.model.check_interface import (
    AvoidNode,
    DiagnosisAction,
    EventAction,
    JobAbortionAction,
    NoAction,
    Node,
    NodeAction,
    Note,
    PreCheckOperator,
    PreCheckResult,
    ReplaceNode,
    Retry,
    StopJob,
    Verdict,
)
from holdfast.model.check_results import ActionKind, CheckChoice, CheckState, Finding

__all__ = [
    "ActionKind",
    "AvoidNode",
    "CheckChoice",
    "CheckState",
    "DiagnosisAction",
    "EventAction",
    "Finding",
    "JobAbortionAction",
    "NoAction",
    "Node",
    "NodeAction",
    "Note",
    "PreCheckOperator",
    "PreCheckResult",
    "ReplaceNode",
    "Retry",
    "StopJob",
    "Verdict",
]
