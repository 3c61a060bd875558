"""Public tools to test with: the simulation, fake platforms, a mock clock."""
