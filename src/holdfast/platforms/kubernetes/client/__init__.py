"""The process that calls Kubernetes' API for the owner, which therefore never blocks and imports no client library."""
