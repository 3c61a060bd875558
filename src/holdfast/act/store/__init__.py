"""The workers' rendezvous store: torch's TCPStore in a child of the agent, so that it outlives rank 0."""
