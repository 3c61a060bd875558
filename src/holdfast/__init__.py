"""Holdfast runs distributed training and inference jobs so that they hold."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.worker import draining, on_drain, progress

__version__ = "0.1.0"

__all__ = ["__version__", "draining", "on_drain", "progress"]


def __getattr__(name: str) -> Any:
    # What a worker calls; the launcher itself has no use for it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast import worker

    return getattr(worker, name)
