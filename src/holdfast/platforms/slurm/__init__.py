"""Slurm as a platform: start a job in an allocation, watch it, submit it."""
