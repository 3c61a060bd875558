"""Builds a `LaunchSpec` from the command line or a job file. This package starts no process."""
