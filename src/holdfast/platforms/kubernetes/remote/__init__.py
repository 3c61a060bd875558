"""Access to jobs in a cluster from outside, for `jobs`, `show`, `logs` and `stop`."""
