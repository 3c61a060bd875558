"""Kubernetes from the owner's side during a job: pods, events, taints, the saved state."""
