"""Kubernetes, pure: the objects of a job, and what the API server's records of them mean."""
