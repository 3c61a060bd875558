"""The workers' rendezvous store: torch's own, in a child of the agent, so that it outlives rank 0."""
