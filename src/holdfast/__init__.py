"""Holdfast runs distributed training and inference jobs so that they hold."""

__version__ = "0.1.0"
