"""Reads job files: their keys, their mistakes, and the job that they describe."""
