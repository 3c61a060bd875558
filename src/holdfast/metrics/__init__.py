"""Exports the metrics of a state directory to Prometheus: totals over all its jobs, and the state of running jobs."""
