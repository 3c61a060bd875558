"""Kubernetes: start a job in pods, watch it, submit it, and look at it from outside."""
