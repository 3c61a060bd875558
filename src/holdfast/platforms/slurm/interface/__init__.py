"""Slurm behind the interface of a platform. The rest of holdfast imports nothing else of Slurm."""
