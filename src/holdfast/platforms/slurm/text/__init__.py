"""Read the output of Slurm's commands and variables, and interpret it. Nothing is run in this folder."""
