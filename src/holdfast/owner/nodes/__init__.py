"""The owner of a multi-node job: its process, the admission of agents, and answers to operators on any node."""
