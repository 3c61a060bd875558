"""The workers' rendezvous store: torch's TCPStore in a child process of the agent. It outlives rank 0."""
