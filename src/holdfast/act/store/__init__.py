"""The workers' rendezvous store: torch's TCPStore in a child process of the agent, so that the store outlives rank
0."""
