"""Warm starts: workers are forked from the nursery, a process that has already done their imports."""
