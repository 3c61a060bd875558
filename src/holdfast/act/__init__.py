"""This package starts, signals and stops processes; repeating an action does no harm."""
