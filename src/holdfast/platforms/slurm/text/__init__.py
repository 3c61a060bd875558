"""Slurm, pure: an allocation, what the commands of Slurm print, and what that means."""
