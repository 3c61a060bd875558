"""The owner of a job over many nodes: its process, the agents that it admits, what operators ask from any node."""
