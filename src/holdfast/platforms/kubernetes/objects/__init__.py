"""Kubernetes: the objects of a job, what its records mean, the client as a helper."""
