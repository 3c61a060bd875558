"""Warm starts: workers forked from a process, the nursery, that has done their imports already."""
