"""Runs pre-checks in processes, and fetches a job's prerequisites.

A run without checks needs none of this code, and few jobs have prerequisites. So a module is imported at the first use
of one of the names below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.launch.check_plan import choices_from_text
    from holdfast.node.prechecks.check_planning import plan_checks
    from holdfast.node.prechecks.check_round import CheckRound
    from holdfast.node.prechecks.checks_during_job import DuringChecks, during
    from holdfast.node.prechecks.prerequisites import Prerequisites

__all__ = [
    "CheckRound", "DuringChecks", "Prerequisites", "choices_from_text", "during", "plan_checks",
]  # fmt: skip

if not TYPE_CHECKING:
    _MODULES = {
        "holdfast.launch.check_plan": ("choices_from_text",),
        "holdfast.node.prechecks.check_planning": ("plan_checks",),
        "holdfast.node.prechecks.check_round": ("CheckRound",),
        "holdfast.node.prechecks.checks_during_job": ("DuringChecks", "during"),
        "holdfast.node.prechecks.prerequisites": ("Prerequisites",),
    }

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
