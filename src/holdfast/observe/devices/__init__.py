"""Finds devices, and reads the faults of devices and nodes from their sources."""
