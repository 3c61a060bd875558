"""The one entrance to Slurm for the rest of holdfast. It imports from the sibling folders on demand."""
