"""Wires a launch, an owner and nodes together: single- and multi-node runs, their guards, agents and containers."""
