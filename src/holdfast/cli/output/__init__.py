"""Prints lines, tables and files for the verbs."""
