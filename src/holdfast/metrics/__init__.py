"""Exports metrics of a state directory to Prometheus: totals over all jobs, and the present state of running jobs."""
