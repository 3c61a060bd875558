"""Runs one machine's part of a job: its workers, evidence, devices, pre-checks and sidecars."""
