"""Kubernetes as a platform: start a job in pods, watch it, submit it, and view it from outside."""
