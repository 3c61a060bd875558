"""The platform Kubernetes: start a job in pods, watch it, submit it, and read its state from outside."""
