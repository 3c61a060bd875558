"""What Prometheus reads of a state directory: totals over all its jobs, and how those that run stand."""
