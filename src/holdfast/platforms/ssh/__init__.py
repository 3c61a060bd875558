"""ssh as a platform: start an agent on each host of a list."""
