"""Slurm's side of a job: stations of the owner that ask Slurm, and the check of a node for Slurm's own hooks."""
