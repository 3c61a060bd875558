"""The decisions of the owner and the agents. This package reads no clock, file, environment or random number."""
