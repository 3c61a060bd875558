"""Parse the output of Slurm commands and Slurm's variables, and interpret them. This folder runs no command."""
