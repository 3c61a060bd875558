"""The built-in pre-checks, one per file. A check reports its findings on this machine; the gate decides about the
start."""
