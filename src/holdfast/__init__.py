"""Holdfast runs distributed training and inference jobs so that they hold."""

from holdfast.worker import draining, on_drain, progress

__version__ = "0.1.0"

__all__ = ["__version__", "draining", "on_drain", "progress"]
