"""The platform ssh: start an agent on each host of a list."""
