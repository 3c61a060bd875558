"""Figures over many jobs: where their time went, what failed how often, how long recovery took. Pure."""
