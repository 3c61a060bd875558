"""Warm starts: workers are forked from a *nursery*, a prewarmed process that has already done their imports."""
