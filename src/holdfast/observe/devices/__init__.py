"""Finds devices, and reads faults of devices and nodes from their sources."""
