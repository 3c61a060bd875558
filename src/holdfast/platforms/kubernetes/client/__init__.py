"""The Kubernetes client process. The owner sends it requests, so that it never blocks and imports no client library."""
