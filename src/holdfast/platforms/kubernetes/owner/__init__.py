"""The part of the Kubernetes platform that runs in the owner's process: pods, events, taints, the saved state."""
