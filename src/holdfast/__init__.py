"""Holdfast runs distributed training and inference jobs so that they hold."""

from holdfast.worker import progress

__version__ = "0.1.0"

__all__ = ["__version__", "progress"]
