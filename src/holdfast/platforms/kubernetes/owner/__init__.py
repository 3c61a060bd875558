"""Kubernetes as the owner sees it during a job: pods, events, taints, the saved state."""
