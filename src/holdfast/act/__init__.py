"""Starts, signals and stops processes. A repeated action does no harm."""
