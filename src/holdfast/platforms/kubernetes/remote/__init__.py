"""Read and stop jobs in a cluster from outside it, for `jobs`, `show`, `logs` and `stop`."""
