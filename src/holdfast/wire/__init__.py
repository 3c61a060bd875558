"""The network between a job's owner and its nodes: addresses, keys, TLS, messages."""
