"""Kubernetes as the owner's platform: the stations that ask it."""
