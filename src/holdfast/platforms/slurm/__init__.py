"""The platform Slurm: start a job in an allocation, watch it, submit it."""
