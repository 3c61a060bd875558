"""Jobs in a cluster, seen and stopped from outside of it: the door of `jobs`, `show`, `logs` and `stop`."""
