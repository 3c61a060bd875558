"""Faults of this machine's devices in a live run: sources, the log that all runs share, what each means, resets."""
