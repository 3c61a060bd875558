"""Warm starts: workers are forks of a *nursery*, a prewarmed process that has already done their imports."""
