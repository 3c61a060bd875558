"""The door of Slurm: what holdfast may ask of it, and which of the folders beside this one answers."""
