"""The process that calls Kubernetes' API for the owner. So the owner never blocks, and imports no client library."""
