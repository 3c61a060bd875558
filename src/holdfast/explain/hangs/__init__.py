"""Decides from samples of ranks which ranks make no progress, and for which rank they wait. Pure."""
