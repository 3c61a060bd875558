"""Starts, signals and stops processes. To repeat an action does no harm."""
