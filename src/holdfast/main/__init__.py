"""Connects a launch, an owner and nodes: runs on one or several machines, with their guards, agents and containers."""
