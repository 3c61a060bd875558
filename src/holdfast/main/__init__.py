"""Joins a launch, an owner and nodes: a run on one machine or many, its guards, an agent, a pod."""
