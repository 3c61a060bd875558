"""Slurm: an allocation, what the commands of Slurm print, and what that means. Outside of Slurm it is not imported."""
