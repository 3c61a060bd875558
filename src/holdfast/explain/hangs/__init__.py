"""Judges samples of ranks: which ranks stand still, and for which rank they wait. Pure."""
