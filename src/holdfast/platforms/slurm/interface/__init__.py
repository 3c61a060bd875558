"""Slurm's implementation of the platform interface. The rest of holdfast imports nothing else of Slurm."""
