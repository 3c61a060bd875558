"""Holdfast keeps distributed training jobs running, and says why they stopped."""

from __future__ import annotations

import sys

from holdfast.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from holdfast.api import BadUsage, HoldfastError, Job, JobEvent, Report, explain, jobs, run
    from holdfast.worker import draining, on_drain, progress
else:
    ModuleType = type(sys)  # avoids importing `types`, which a worker does not need

__all__ = [
    "BadUsage",
    "HoldfastError",
    "Job",
    "JobEvent",
    "Report",
    "__version__",
    "draining",
    "explain",
    "jobs",
    "on_drain",
    "progress",
    "run",
]
_OF_WORKERS = ("draining", "on_drain", "progress")


def _member(module: str, name: str) -> Any:
    """Import a module when one of its names is first used, and return the name's value.

    A worker then loads no module but `holdfast.worker`.
    """
    return getattr(__import__(module, fromlist=(name,)), name)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "explain":
        __import__("holdfast.explain")  # binds the name `explain`; modules of `api` are only loaded when it is called
        return globals()[name]
    return _member("holdfast.worker" if name in _OF_WORKERS else "holdfast.api", name)


def __dir__() -> list[str]:
    """Return the names that a user may call, which are imported when they are used."""
    return __all__


# `holdfast.explain` is both a function for users and a package. The import system binds the name to the package as soon
# as any module imports the package. So the package itself is callable, and the name works in every order of imports.


class _Explaining(ModuleType):
    def __call__(self, logs: Any, *, exit_code: int | None = None, signal: int | str | None = None) -> Report:
        found: Report = _member("holdfast.api.explain_logs", "explain")(logs, exit_code=exit_code, signal=signal)
        return found


class _Holdfast(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        if name == "explain" and type(value) is ModuleType:
            value.__class__ = _Explaining
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Holdfast
