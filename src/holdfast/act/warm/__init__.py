"""Warm starts: workers are forked from a *nursery*, a process that has already done their imports."""
