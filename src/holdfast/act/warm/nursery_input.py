"""Makes the environment and the first message of a nursery."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.act.warm.unsafe_imports import Lesson
from holdfast.act.warm.warm_command import OURS, PER_WORKER, Blueprint


def nursery_environment(env: Mapping[str, str], control: int, door: str) -> dict[str, str]:
    """Return the nursery's environment: the workers' one, with the directory `door` first on PYTHONPATH. `control`: the
    fd of the nursery's socket."""
    pythonpath = env.get("PYTHONPATH")
    return {
        "HOLDFAST_NURSERY": str(control),
        **env,
        "PYTHONPATH": f"{door}{os.pathsep}{pythonpath}" if pythonpath else door,
    }


def briefing(plan: Blueprint, env: Mapping[str, str], preload: Sequence[str], lesson: Lesson | None) -> dict[str, Any]:
    """Return the first message to a nursery."""
    return {
        "supervisor": os.getpid(),
        "pythonpath": env.get("PYTHONPATH"),
        "script": plan.script,
        "module": plan.module,
        "preload": list(preload),
        "per_worker": sorted(PER_WORKER),
        "ours": OURS,
        "lesson": None if lesson is None else msgspec.to_builtins(lesson),
    }
