"""Submit jobs to Slurm (`holdfast submit --platform slurm`) as batch scripts, and read Slurm's queue."""
