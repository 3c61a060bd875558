"""The built-in pre-checks, one per file. A check reports its findings on this machine. Other code decides whether the
job may start."""
