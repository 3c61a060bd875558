"""Reads logs: turns text into lines, tracebacks, exits that launchers print, and clues with their weights. Pure."""
