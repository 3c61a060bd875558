"""Sends messages and reports to people and programs while a job runs and at its end, from a separate process."""
