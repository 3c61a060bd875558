"""What a nursery gets when it is started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.act.warm.unsafe_imports import Lesson
from holdfast.act.warm.warm_command import OURS, PER_WORKER, Blueprint


def nursery_environment(env: Mapping[str, str], control: int, door: str) -> dict[str, str]:
    """The workers' environment, with the way in. `control`: the fd of its socket."""
    pythonpath = env.get("PYTHONPATH")
    return {
        "HOLDFAST_NURSERY": str(control),
        **env,
        "PYTHONPATH": f"{door}{os.pathsep}{pythonpath}" if pythonpath else door,
    }


def briefing(plan: Blueprint, env: Mapping[str, str], preload: Sequence[str], lesson: Lesson | None) -> dict[str, Any]:
    """Its first message."""
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
