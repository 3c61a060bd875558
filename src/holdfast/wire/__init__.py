"""The network between a job's owner and its agents: addresses, keys, TLS connections and messages."""
