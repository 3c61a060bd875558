"""Starts, signals and stops processes. Each action can be repeated safely."""
