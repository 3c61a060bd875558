"""The metrics of a state directory for Prometheus: totals over all its jobs, and the state of those that run."""
