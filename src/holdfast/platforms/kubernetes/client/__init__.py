"""The client for Kubernetes, a process of its own: the owner asks it, never blocks, and imports no client library."""
