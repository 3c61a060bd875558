"""Surfaces: the command line, the report as text and as JSON."""
