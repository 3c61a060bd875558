"""Faults of this machine's devices in a live run: sources, the machine's book, what each means, resets."""
